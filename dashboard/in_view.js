// Tells that the place is in view, or will be after a little more scrolling. What was told last is drawn before the
// next place tells: two at once would cut each other's drawing short. Who gets no answer tells again. Each is told
// alone, see history.js.
const PATIENCE_MS = 1500;
const line = (window.envschedInView ||= { waiting: [], told: null });

function next() {
  line.waiting = line.waiting.filter((one) => one.place.isConnected);
  if (line.told || !line.waiting.length) return;
  const one = (line.told = line.waiting.shift());
  window.envschedTellNow?.();
  one.tell();
  window.envschedTellNow?.();
  one.timer = setTimeout(() => {
    line.waiting.push(one);
    line.told = null;
    next();
  }, PATIENCE_MS);
}

function leave(one) {
  clearTimeout(one.timer);
  line.waiting = line.waiting.filter((other) => other !== one);
  if (line.told === one) line.told = null;
  next();
}

export default function ({ data, parentElement, setTriggerValue }) {
  const place = parentElement.querySelector(".waiting");
  place.style.height = data.height + "px";
  place.setAttribute("role", "img");
  place.setAttribute("aria-label", data.alt);
  line.waiting = line.waiting.filter((other) => other.place !== place);
  const one = { place, tell: () => setTriggerValue("seen", true), timer: 0 };
  const watch = new IntersectionObserver((found) => {
    if (!found.some((entry) => entry.isIntersecting)) return;
    watch.disconnect();
    line.waiting.push(one);
    next();
  }, { scrollMargin: "120px" });
  watch.observe(place);
  return () => {
    watch.disconnect();
    leave(one);
  };
}

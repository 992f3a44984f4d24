// Back undoes one act of the reader with one press.
//
// A click that opens a page sets the page, the step and a filter one after the other, and Streamlit makes an entry of
// the browser's history of each: here only the first after an act is one, the others take its place. And a tick of the
// live fragment that crosses a click or a Back on its way can bring the page just left, or an empty one, with nothing
// running: then the address is followed once more, as if the reader had come back to it. A tick that is sent behind a
// click in the menu can take its page away in the same way: then the click is made once more.
if (!window.envschedHistory) {
  window.envschedHistory = true;
  const TRIES = 3, LOOK_MS = 1000, MENU = "[data-testid=stSidebarNav] a";
  const push = history.pushState.bind(history);
  let acted = false, back = null, tries = TRIES, empty = 0, wanted = null, missed = 0;

  const follow = () => {
    if (tries <= 0) return;
    tries -= 1;
    setTimeout(() => window.dispatchEvent(new PopStateEvent("popstate", {state: history.state})));
  };
  for (const kind of ["pointerdown", "keydown"])
    window.addEventListener(kind, () => { acted = true; back = null; wanted = null; tries = TRIES; }, {capture: true});
  window.addEventListener("click", event => {
    const elsewhere = event.ctrlKey || event.metaKey || event.shiftKey || event.altKey;  // another tab or window
    const link = event.isTrusted && !elsewhere && event.target.closest?.(MENU);
    if (link) { wanted = link.pathname; missed = 0; }
  }, {capture: true});
  window.addEventListener("popstate", event => {
    if (event.isTrusted) { acted = false; wanted = null; back = location.pathname; tries = TRIES; }
  }, {capture: true});
  history.pushState = (state, title, url) => {
    const stale = !acted && back !== null && new URL(url, location.href).pathname !== back;
    if (acted) push(state, title, url);
    else if (stale) follow();
    else history.replaceState(state, title, url);
    acted = false;
  };
  setInterval(() => {
    const app = document.querySelector("[data-testid=stApp]");
    const idle = app !== null && app.getAttribute("data-test-script-state") === "notRunning";
    empty = idle && document.querySelector("[data-testid=stMain] h1") === null ? empty + 1 : 0;
    if (empty > 1) { empty = 0; follow(); }
    if (wanted === null || !idle) return;
    if (wanted === location.pathname) wanted = null;
    else if (++missed > 1 && tries > 0) {
      missed = 0;
      tries -= 1;
      acted = true;
      [...document.querySelectorAll(MENU)].find(link => link.pathname === wanted)?.click();
    }
  }, LOOK_MS);
}

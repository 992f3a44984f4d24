// Back undoes one act of the reader with one press.
//
// A click that opens a page sets the page, the step and a filter one after the other, and Streamlit makes an entry of
// the browser's history of each: here only the first after an act is one, the others take its place. And a tick of the
// live fragment that crosses a click or a Back on its way can bring the page just left, or an empty one, with nothing
// running: then the address is followed once more, as if the reader had come back to it. A tick that is sent behind a
// click in the menu can take its page away in the same way: then the click is made once more.
//
// What a part of a page just left still tells the server behind the click, such as a chart that comes into view, is
// kept back until another page speaks: one of its parts, or the reader's next act on it, which may lead back. It would
// be answered in the name of the old page; Streamlit's client then empties the new one, and its next part, whose place
// is gone, ends the client: a white page. Should that happen all the same, the page is loaded anew from its address,
// which holds the run, the step and the filters.
//
// Streamlit's client gathers what is to be told until its timer comes, and tells it in the name of one part, if there
// is one: a click on the page in the same moment as a chart that comes into view would draw that chart alone. So what
// comes into view (in_view.js) has told at once what was gathered before it, and then itself.
if (!window.envschedHistory) {
  window.envschedHistory = true;
  const TRIES = 3, LOOK_MS = 1000, LEAVE_MS = 5000, AGAIN_MS = 60000, MENU = "[data-testid=stSidebarNav] a";
  const PAGE = /\x1a\x20([0-9a-f]{32})(?:\x22\x00)?(\x2a)?/;  // in a message's bytes: its page; if a part's, a mark
  const push = history.pushState.bind(history);
  let acted = false, back = null, tries = TRIES, empty = 0, wanted = null, missed = 0;

  const later = window.setTimeout.bind(window);
  let due = null;
  window.setTimeout = (act, delay, ...rest) => {
    if (delay || !String(act).includes("sendUpdateWidgetsMessage")) return later(act, delay, ...rest);
    const once = () => { if (due === once) { due = null; act(); } };
    due = once;
    return later(once);
  };
  window.envschedTellNow = () => due?.();

  const send = WebSocket.prototype.send, text = new TextDecoder("latin1");
  const left = new Set();
  let page = null, leaving = 0;
  WebSocket.prototype.send = function (told) {
    const [, of, part] = (ArrayBuffer.isView(told) && PAGE.exec(text.decode(told))) || [];
    if (part && left.has(of) && performance.now() < leaving) return;
    if (part || (of === page && wanted === null)) left.clear();  // wanted: the link in the menu was clicked once more
    else if (of && page !== null && of !== page) {
      left.add(page).delete(of);
      leaving = performance.now() + LEAVE_MS;
    }
    page = of ?? page;
    send.call(this, told);
  };

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
    if (app === null && Date.now() - (sessionStorage.getItem("envschedAgain") ?? 0) > AGAIN_MS) {
      sessionStorage.setItem("envschedAgain", Date.now());
      location.reload();
    }
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

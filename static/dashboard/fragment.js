/* Refreshes a part of a page with HTML of the server, two seconds after each response:
   <div data-fragment="/address" data-text-live data-text-polling data-text-login> with a
   [data-connection] and a [data-live] in it; with data-text-held if that has <details data-keep>. */
(function () {
  "use strict";

  const PAUSE_MS = 2000;
  const LOGGED_OUT_MS = 30000;

  const root = document.querySelector("[data-fragment]");
  if (root === null) return;
  const live = root.querySelector("[data-live]");
  const label = root.querySelector("[data-connection]");
  let pressed = false;
  let shown = null;

  function say(kind) {
    label.dataset.kind = kind;
    label.textContent = root.dataset["text" + kind[0].toUpperCase() + kind.slice(1)];
  }

  /* Postpone the refresh while a button is pressed. */
  document.addEventListener("pointerdown", () => (pressed = true));
  for (const end of ["pointerup", "pointercancel"]) {
    document.addEventListener(end, () => setTimeout(() => (pressed = false), 50));
  }

  /* Identify the focused element by its action, because a refresh replaces the element. */
  function mark(element) {
    return ["href", "formaction", "name", "value"].map((each) => element.getAttribute(each)).join(" ");
  }

  /* What somebody has opened to read stays as it is: a refresh would close it. */
  function held() {
    return live.querySelector("details[data-keep][open]") !== null;
  }

  function show(html) {
    if (html === shown || pressed || held()) return;
    const active = document.activeElement;
    const focused = live.contains(active) ? mark(active) : null;
    live.innerHTML = html;
    shown = html;
    if (focused === null) return;
    for (const each of live.querySelectorAll("a[href], button")) {
      if (mark(each) === focused) {
        each.focus();
        break;
      }
    }
  }

  async function refresh() {
    let pause = PAUSE_MS;
    const before = performance.now();
    try {
      if (!document.hidden) {
        const answer = await Crawlyard.ask(root.dataset.fragment, "text/html");
        show(await answer.text());
        say(held() ? "held" : "live");
        // Wait in proportion to the response time, so that a slow server is polled less often.
        pause = Math.max(PAUSE_MS, 4 * (performance.now() - before));
      }
    } catch (error) {
      const out = error instanceof Crawlyard.LoggedOut;
      say(out ? "login" : "polling");
      if (out) pause = LOGGED_OUT_MS;
    }
    setTimeout(refresh, pause);
  }

  refresh();
})();

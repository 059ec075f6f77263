/* A page whose changing part is the server's own HTML, fetched again two seconds after each answer. */
(function () {
  "use strict";

  const PAUSE_MS = 2000;
  const LOGGED_OUT_MS = 30000;

  const root = document.querySelector("[data-fragment]");
  if (root === null) return;
  const live = root.querySelector("[data-live]");
  const label = root.querySelector("[data-connection]");

  function say(kind) {
    label.dataset.kind = kind;
    label.textContent = root.dataset["text" + kind[0].toUpperCase() + kind.slice(1)];
  }

  async function refresh() {
    let pause = PAUSE_MS;
    const before = performance.now();
    try {
      if (!document.hidden) {
        const answer = await Crawlyard.ask(root.dataset.fragment, "text/html");
        const focused = document.activeElement?.getAttribute("href");
        live.innerHTML = await answer.text();
        if (focused && document.activeElement === document.body) {
          live.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus();
        }
        say("live");
        // A server that is slow is not asked more often for it.
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

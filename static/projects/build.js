/* Keeps the state of one build fresh until it has ended; its log has a socket of its own. */
(function () {
  "use strict";

  const PAUSE_MS = 2000;
  const root = document.querySelector("[data-build-live]");
  if (!root) return;

  const card = () => root.querySelector("[data-active]");
  const active = () => card() && card().dataset.active === "1";

  async function refresh() {
    if (!document.hidden) {
      const before = card().dataset.state;
      try {
        const answer = await fetch(root.dataset.buildLive, {
          headers: { "X-Requested-With": "XMLHttpRequest" },
          credentials: "same-origin",
          cache: "no-store",
          redirect: "manual",
        });
        if (answer.ok) root.innerHTML = await answer.text();
      } catch (error) {
        // The next one may come through.
      }
      // The buttons above depend on it.
      if (card().dataset.state !== before && !active()) {
        location.reload();
        return;
      }
    }
    if (active()) setTimeout(refresh, PAUSE_MS);
  }

  if (active()) setTimeout(refresh, PAUSE_MS);
})();

/* Above the log and the settings of a run: nothing says "Live" any more once the run has ended. */
(() => {
  "use strict";
  const root = document.querySelector("[data-fragment]");
  if (root === null) return;
  const live = root.querySelector("[data-live]");
  new MutationObserver(() => {
    if (live.querySelector('[data-active="false"]') === null) return;
    root.dataset.textLive = root.dataset.textEnded;
    const log = document.querySelector("[data-log]");
    if (log !== null) log.dataset.ended = "";
  }).observe(live, { childList: true });
})();

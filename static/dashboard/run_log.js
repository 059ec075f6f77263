/* The log of a run stops saying "Live" when the state above it says that the run has ended. */
(() => {
  "use strict";
  const live = document.querySelector("[data-fragment] [data-live]");
  const log = document.querySelector("[data-log]");
  new MutationObserver(() => {
    if (live.querySelector('[data-active="false"]')) log.dataset.ended = "";
  }).observe(live, { childList: true });
})();

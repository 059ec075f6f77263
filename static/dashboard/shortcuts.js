/* Keys of every page of the admin: g and a letter goes somewhere, / searches the list, ? tells.
   Where they lead stands in the page, in [data-shortcuts], as far as the person may go there. */
(function () {
  "use strict";

  const SECOND_KEY_MS = 2000;
  const OFF = "crawlyard.single-keys-off";
  let waitingSince = -Infinity;

  const off = () => localStorage.getItem(OFF) !== null;

  /* Somebody writes, or a dialog is open: letters are letters. */
  function busy(target) {
    return (
      target.closest("input, textarea, select, [contenteditable], [role=dialog]") !== null ||
      document.body.classList.contains("overflow-hidden")
    );
  }

  document.addEventListener("keydown", (event) => {
    const places = document.querySelector("[data-shortcuts]");
    if (places === null || off() || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.isComposing || !(event.target instanceof Element) || busy(event.target)) return;
    if (performance.now() - waitingSince < SECOND_KEY_MS) {
      waitingSince = -Infinity;
      const place = places.querySelector(`[data-key="${CSS.escape(event.key)}"]`);
      if (place !== null) {
        event.preventDefault();
        location.assign(place.href);
        return;
      }
    }
    if (event.key === "g") waitingSince = performance.now();
    else if (event.key === "?") location.assign(places.dataset.keys);
    else if (event.key === "/") {
      const field = document.querySelector("#searchbar, [data-search-field]");
      if (field !== null) {
        event.preventDefault();
        field.focus();
        field.select();
      }
    }
  });

  /* The theme's scroll bars name what they scroll in English, for screen readers. */
  window.addEventListener("load", () => {
    const words = document.querySelector("[data-shortcuts]")?.dataset.scrollable;
    if (!words) return;
    for (const area of document.querySelectorAll(".simplebar-content-wrapper")) {
      area.setAttribute("aria-label", words);
    }
  });

  document.addEventListener("DOMContentLoaded", () => {
    const box = document.querySelector("[data-single-keys]");
    if (box === null) return;
    box.checked = !off();
    box.addEventListener("change", () => {
      if (box.checked) localStorage.removeItem(OFF);
      else localStorage.setItem(OFF, "1");
    });
  });
})();

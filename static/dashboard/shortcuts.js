/* Keyboard shortcuts of the admin: g and a letter opens a page, / searches the list, ? shows help.
   [data-shortcuts] lists the pages that the user may open. */
(function () {
  "use strict";

  const SECOND_KEY_MS = 2000;
  const OFF = "crawlyard.single-keys-off";
  let waitingSince = -Infinity;

  const off = () => localStorage.getItem(OFF) !== null;

  /* Whether a text field has the focus or a dialog is open: no shortcuts then. */
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

  /* Translate the labels of the theme's scroll areas for screen readers. */
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

/* The form of an alert rule: shows only the fields of a series, an event or a condition. */
(function () {
  "use strict";

  const choice = document.getElementById("id_event");
  if (choice === null) return;

  /* The first group of the choices holds events, the second conditions. */
  function subject() {
    const group = choice.selectedOptions[0].parentElement;
    if (group === choice) return "series";
    return group === choice.querySelector("optgroup") ? "event" : "condition";
  }

  function show() {
    const of = subject();
    for (const part of document.querySelectorAll("[data-of]")) {
      part.hidden = !part.dataset.of.split(" ").includes(of);
    }
  }

  choice.addEventListener("change", show);
  show();
})();

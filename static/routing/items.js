/* Lists of items: tick all, say how many are ticked. */
(function () {
  "use strict";

  for (const form of document.querySelectorAll("form[data-items]")) {
    const all = form.querySelector("[data-tick-all]");
    const told = form.querySelector("[data-ticked]");
    const ticks = [...form.querySelectorAll("input[name=_selected_action]")];
    const update = () => {
      const count = ticks.filter((tick) => tick.checked).length;
      if (told) told.textContent = ticks.length ? `${count} / ${ticks.length}` : "";
      for (const button of form.querySelectorAll("[data-needs-tick]")) button.disabled = count === 0;
      if (all) all.checked = count > 0 && count === ticks.length;
    };
    form.addEventListener("change", (event) => {
      if (event.target === all) for (const tick of ticks) tick.checked = all.checked;
      update();
    });
    update();
  }
})();

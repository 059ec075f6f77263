/* "Copy" buttons: data-copy names the element whose text is copied. */
(function () {
  "use strict";

  /* Without a script the button could do nothing, so it is not shown. */
  document.querySelectorAll("[data-copy]").forEach((button) => { button.hidden = false; });

  function select(element) {
    const range = document.createRange();
    range.selectNodeContents(element);
    const selection = window.getSelection();
    selection.removeAllRanges();
    selection.addRange(range);
  }

  async function copy(element) {
    try {
      await navigator.clipboard.writeText(element.textContent);
      return true;
    } catch {
      /* Without TLS browsers offer no clipboard; the old way still works there. */
      select(element);
      return document.execCommand("copy");
    }
  }

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) {
      return;
    }
    const element = document.getElementById(button.dataset.copy);
    const done = await copy(element);
    button.dataset.label ??= button.textContent;
    /* Where neither way is allowed the text stays selected, for the keys. */
    button.textContent = done ? button.dataset.copied : button.dataset.selected;
    clearTimeout(Number(button.dataset.timer));
    const back = () => { button.textContent = button.dataset.label; };
    button.dataset.timer = setTimeout(back, done ? 1500 : 5000);
  });
})();

/* "Copy" buttons: data-copy names the element whose text is copied. */
(function () {
  "use strict";

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
    if (await copy(element)) {
      const before = button.textContent;
      button.textContent = button.dataset.copied;
      setTimeout(() => { button.textContent = before; }, 1500);
    }
  });
})();

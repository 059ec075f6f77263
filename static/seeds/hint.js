/* The form of a frontier: what the rules do that are being typed, asked of the server. */
(function () {
  "use strict";

  const QUIET_MS = 300;
  const NAMES = ["segments", "time_zone", "keys", "ignored_parameters", "example"];

  const root = document.querySelector("[data-hint]");
  if (root === null) return;
  const shown = document.querySelector("[data-hint-shown]");
  const boxes = NAMES.map((name) => [name, document.getElementById("id_" + name)]);
  let timer = null;
  let asked = 0;

  async function ask() {
    const body = new URLSearchParams();
    for (const [name, box] of boxes) {
      const fixed = root.dataset[name.replace(/_(.)/g, (_, letter) => letter.toUpperCase())];
      body.set(name, box !== null ? box.value : fixed ?? "");
    }
    const token = document.querySelector("[name=csrfmiddlewaretoken]");
    const number = ++asked;
    try {
      const answer = await fetch(root.dataset.hint, {
        method: "POST",
        body,
        headers: { "X-CSRFToken": token ? token.value : "" },
        credentials: "same-origin",
        redirect: "manual",
      });
      // An answer that was overtaken is no answer to what stands there now.
      if (answer.ok && number === asked) shown.innerHTML = await answer.text();
    } catch (error) {
      // The server does not answer: what is shown stays.
    }
  }

  for (const [, box] of boxes) {
    box?.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(ask, QUIET_MS);
    });
  }
})();

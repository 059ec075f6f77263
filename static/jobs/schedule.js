/* The schedule of a job: presets fill the expression; words and next times follow what is typed. */
(() => {
  "use strict";
  const form = document.querySelector("[data-schedule]");
  if (form === null) return;
  const cron = form.elements.cron;
  const zone = form.elements.time_zone;
  const words = form.querySelector("[data-words]");
  const times = form.querySelector("[data-times]");
  let asked = 0;
  let timer = null;

  async function preview() {
    const number = ++asked;
    times.replaceChildren();
    if (cron.value.trim() === "") {
      words.textContent = form.dataset.textNone;
      return;
    }
    const answer = await fetch(form.dataset.preview, {
      method: "POST",
      headers: {
        "Content-Type": "application/json",
        Accept: "application/json",
        "Accept-Language": document.documentElement.lang,
        "X-CSRFToken": form.elements.csrfmiddlewaretoken.value,
      },
      body: JSON.stringify({ cron: cron.value, time_zone: zone.value }),
    });
    const shown = await answer.json();
    if (number !== asked) return;
    if (!answer.ok) {
      const problem = Object.values(shown.fields).flat().join(" ") || shown.detail;
      words.textContent = problem;
      words.className = "cy-danger-text";
      return;
    }
    words.className = "";
    words.textContent = shown.words;
    for (const time of shown.next_times) {
      const line = document.createElement("li");
      const utc = zone.value === "UTC" ? "" : ` (${time.utc.slice(0, 16).replace("T", " ")} UTC)`;
      line.textContent = time.local.slice(0, 16).replace("T", " ") + utc;
      times.append(line);
    }
  }

  function soon() {
    clearTimeout(timer);
    timer = setTimeout(preview, 300);
  }

  for (const button of form.querySelectorAll("[data-cron]")) {
    button.addEventListener("click", () => {
      cron.value = button.dataset.cron;
      preview();
    });
  }
  cron.addEventListener("input", soon);
  zone.addEventListener("input", soon);
})();

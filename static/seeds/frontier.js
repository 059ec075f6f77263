/* The page of a frontier: the server's own HTML, fetched again two seconds after each answer. */
(function () {
  "use strict";

  const PAUSE_MS = 2000;
  const LOGGED_OUT_MS = 30000;

  const root = document.getElementById("frontier");
  if (root === null) return;
  const live = root.querySelector("[data-live]");
  const label = root.querySelector("[data-connection]");
  const rates = new Map();
  let pressed = false;
  let shown = null;

  function say(kind) {
    label.dataset.kind = kind;
    label.textContent = root.dataset["text" + kind[0].toUpperCase() + kind.slice(1)];
  }

  /* Figures come with the reports, every few seconds: only a change is a sample. */
  function measure() {
    for (const target of live.querySelectorAll("[data-rate]")) {
      const total = Number(target.dataset.total);
      const name = target.dataset.rate;
      if (!rates.has(name)) rates.set(name, new Crawlyard.Rate());
      const rate = rates.get(name);
      rate.add(total);
      target.textContent = Crawlyard.rateText(rate.now());
    }
  }

  /* A button that is being pressed must not go away under the finger. */
  document.addEventListener("pointerdown", () => (pressed = true));
  for (const end of ["pointerup", "pointercancel"]) {
    document.addEventListener(end, () => setTimeout(() => (pressed = false), 50));
  }

  function show(html) {
    if (html === shown || pressed) return;
    const active = document.activeElement;
    const mark = live.contains(active)
      ? active.getAttribute("href") || active.getAttribute("formaction")
      : null;
    const value = mark === null ? null : active.getAttribute("value");
    live.innerHTML = html;
    shown = html;
    if (mark === null) return;
    for (const each of live.querySelectorAll("a[href], button[formaction]")) {
      const same = (each.getAttribute("href") || each.getAttribute("formaction")) === mark;
      if (same && each.getAttribute("value") === value) {
        each.focus();
        break;
      }
    }
  }

  async function refresh() {
    let pause = PAUSE_MS;
    const before = performance.now();
    try {
      if (!document.hidden) {
        const answer = await Crawlyard.ask(root.dataset.fragment, "text/html");
        show(await answer.text());
        measure();
        say("live");
        // A server that is slow is not asked more often for it.
        pause = Math.max(PAUSE_MS, 4 * (performance.now() - before));
      }
    } catch (error) {
      const out = error instanceof Crawlyard.LoggedOut;
      say(out ? "login" : "polling");
      if (out) pause = LOGGED_OUT_MS;
    }
    setTimeout(refresh, pause);
  }

  /* Buttons of the live part belong to one form outside of it. */
  document.addEventListener("submit", (event) => {
    const question = event.submitter?.dataset.confirm;
    if (question && !window.confirm(question)) event.preventDefault();
  });

  refresh();
})();

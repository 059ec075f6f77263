/* The overview. Counters of active runs arrive over the socket; the rest is HTML of the server,
   refreshed when a run changes its state and every ten seconds: queues and agents send no events. */
(function () {
  "use strict";

  const REFRESH_MS = 10000;
  const SOON_MS = 700;

  const root = document.getElementById("home");
  const parts = root.querySelectorAll("[data-live]");
  const runs = new Map();
  let soon = null;

  function runOf(number) {
    if (!runs.has(number)) runs.set(number, { rate: new Crawlyard.Rate(), figures: undefined });
    return runs.get(number);
  }

  function show(figures) {
    const known = runOf(figures.run);
    if (Crawlyard.isOlder(figures, known.figures)) return;
    known.figures = figures;
    known.rate.add(figures.pages);
    const row = root.querySelector(`tr[data-run="${Number(figures.run)}"]`);
    if (row !== null) Crawlyard.write(row, figures);
  }

  function tick() {
    for (const row of root.querySelectorAll("tr[data-run]")) {
      const known = runs.get(Number(row.dataset.run));
      if (known) row.querySelector("[data-rate]").textContent = Crawlyard.rateText(known.rate.now());
    }
  }

  async function refresh() {
    const answer = await Crawlyard.ask(root.dataset.fragment, "text/html");
    const fresh = document.createElement("template");
    fresh.innerHTML = await answer.text();
    for (const part of parts) {
      const news = fresh.content.querySelector(`[data-part="${part.dataset.live}"]`);
      if (news !== null) part.innerHTML = news.innerHTML;
    }
    for (const row of root.querySelectorAll("tr[data-run]")) {
      const known = runOf(Number(row.dataset.run));
      if (known.figures === undefined || Crawlyard.saysMore(row, known.figures)) {
        known.rate.add(Number(row.dataset.pages));
      } else {
        Crawlyard.write(row, known.figures);
      }
    }
    for (const run of runs.keys()) {
      if (root.querySelector(`tr[data-run="${Number(run)}"]`) === null) runs.delete(run);
    }
    tick();
  }

  const connection = new Crawlyard.Live(root, {
    event(event) {
      if (event.kind === "run.counters") show(event.payload);
      else if (soon === null) {
        soon = setTimeout(() => {
          soon = null;
          connection.poll();
        }, SOON_MS);
      }
    },
    poll: refresh,
  });
  setInterval(tick, 1000);
  setInterval(() => connection.up && connection.poll(), REFRESH_MS);
})();

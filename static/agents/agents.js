/* The list of agents and the page of one. The socket says that something has changed; what, is
   the server's own HTML: cells of the list, or the changing part of the page. */
(function () {
  "use strict";

  const REFRESH_MS = 3000;
  const QUIET_MS = 10000;

  function follow(root, refresh) {
    let timer = null;
    let notBefore = 0;
    const connection = new Crawlyard.Live(root, {
      event() {
        if (timer !== null) return;
        timer = setTimeout(() => {
          timer = null;
          notBefore = performance.now() + REFRESH_MS;
          connection.poll();
        }, Math.max(0, notBefore - performance.now()));
      },
      poll: refresh,
    });
    // An agent that has died tells nobody.
    setInterval(() => connection.up && connection.poll(), QUIET_MS);
  }

  const list = document.getElementById("agents-live");
  if (list !== null) {
    const cells = () => [...document.querySelectorAll("[data-live-cell]")];
    follow(list, async () => {
      const ids = [...new Set(cells().map((cell) => cell.dataset.liveCell.split(".")[0]))];
      if (ids.length === 0) return;
      const answer = await Crawlyard.ask(`${list.dataset.cells}?ids=${ids.join(",")}`, "application/json");
      const found = (await answer.json()).cells;
      for (const cell of cells()) {
        const html = found[cell.dataset.liveCell];
        if (html !== undefined && cell.innerHTML !== html) cell.innerHTML = html;
      }
    });
  }

  const page = document.getElementById("agent-live");
  if (page !== null) {
    follow(page, async () => {
      const answer = await Crawlyard.ask(page.dataset.fragment, "text/html");
      page.querySelector("[data-live]").innerHTML = await answer.text();
    });
  }
})();

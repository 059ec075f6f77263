/* The page of one run. Counters arrive over the socket; the rest is HTML of the server, refreshed
   when the run changes its state. */
(function () {
  "use strict";

  const REFRESH_MS = 2000;
  const SPARK_POINTS = 120;

  const root = document.getElementById("run");
  const live = root.querySelector("[data-live]");
  const rate = new Crawlyard.Rate();
  const spark = [];
  const openedAt = performance.now();
  let shown;
  let refreshAt = 0;
  let refreshTimer = null;
  let lookTimer = null;
  let secondsFrom = openedAt;

  const body = () => live.firstElementChild;
  const ended = () => body().dataset.active === "false";

  function show(figures) {
    if (Crawlyard.isOlder(figures, shown)) return;
    const failedBefore = shown ? shown.failed : figures.failed;
    shown = figures;
    rate.add(figures.pages);
    write(figures);
    live.querySelector("[data-warn=failed]").classList.toggle("cy-danger", figures.failed > 0);
    showAgents(figures);
    // The first report of a center adds a row, rendered by the server.
    const news = figures.center.reported && live.querySelector("[data-equation=center]") === null;
    if (news || figures.failed > failedBefore || figures.final !== (body().dataset.final === "true")) {
      refreshSoon();
    }
  }

  /* Counters of the run by name; those of the centers have the prefix "center.". */
  function write(figures) {
    const named = Object.entries(figures.center).map(([name, value]) => [`center.${name}`, value]);
    Crawlyard.write(live, { ...figures, ...Object.fromEntries(named) });
    for (const target of live.querySelectorAll("[data-mean]")) {
      const ms = figures[target.dataset.mean];
      if (typeof ms === "number") target.textContent = ms.toFixed(Number(target.dataset.digits || 0)) + " ms";
    }
    const balanced = {
      requests: figures.requests_balanced,
      attempts: figures.attempts_balanced,
      center: figures.center.balanced,
    };
    const all = figures.balanced && figures.center.balanced;
    live.querySelector("[data-accounting]").dataset.balanced = String(all);
    for (const line of live.querySelectorAll("[data-equation]")) {
      line.dataset.balanced = String(balanced[line.dataset.equation]);
    }
  }

  function showAgents(figures) {
    const answers = figures.agents;
    const total = Object.values(answers).reduce((sum, value) => sum + value, 0);
    for (const [agent, value] of Object.entries(answers)) {
      const row = live.querySelector(`[data-agent="${CSS.escape(agent)}"]`);
      if (row === null) {
        refreshSoon();
        continue;
      }
      row.querySelector("[data-answers]").textContent = Crawlyard.count(value);
      const failed = figures.agent_failed?.[agent] ?? 0;
      row.querySelector("[data-agent-failed]").textContent = Crawlyard.count(failed);
      const ms = figures.agent_ms?.[agent];
      if (ms !== undefined && value > 0) {
        row.querySelector("[data-agent-mean]").textContent = Crawlyard.count(Math.round(ms / value));
      }
      row.querySelector("[data-share]").setAttribute("width", (100 * value) / total);
    }
  }

  /* Fetch the server's HTML, at most every two seconds. */
  function refreshSoon() {
    if (refreshTimer !== null) return;
    const pause = Math.max(0, refreshAt - performance.now());
    refreshTimer = setTimeout(() => {
      refreshTimer = null;
      refreshAt = performance.now() + REFRESH_MS;
      refresh().catch(() => undefined);
    }, pause);
  }

  async function refresh() {
    const answer = await Crawlyard.ask(root.dataset.fragment, "text/html");
    live.innerHTML = await answer.text();
    secondsFrom = performance.now();
    // Counters received over the socket meanwhile may be newer than this HTML.
    if (shown !== undefined && !Crawlyard.saysMore(body(), shown)) write(shown);
    tick();
    sayEnded();
    lookAgain();
  }

  /* Refresh when a pending command counts as unanswered: no event is sent for that. */
  function lookAgain() {
    clearTimeout(lookTimer);
    const seconds = body().dataset.lookAgain;
    if (seconds !== undefined) lookTimer = setTimeout(refreshSoon, 1000 * Number(seconds) + 500);
  }

  function sayEnded() {
    if (!ended()) return;
    for (const one of [root, ...document.querySelectorAll("[data-log]")]) one.dataset.ended = "";
  }

  function tick() {
    const duration = live.querySelector("[data-duration][data-seconds]");
    if (duration !== null) {
      const since = (performance.now() - secondsFrom) / 1000;
      duration.textContent = Crawlyard.clock(Number(duration.dataset.seconds) + since);
    }
    const target = live.querySelector("[data-rate]");
    if (target === null) return;
    const now = rate.now();
    target.textContent = Crawlyard.rateText(now);
    drawSpark(now);
  }

  function drawSpark(now) {
    spark.push(now || 0);
    if (spark.length > SPARK_POINTS) spark.shift();
    const line = live.querySelector("[data-spark] polyline");
    if (line === null || spark.length < 3) return;
    const top = Math.max(...spark, 1);
    const step = SPARK_POINTS / (spark.length - 1);
    const points = spark.map((value, i) => `${(i * step).toFixed(1)},${(19 - (18 * value) / top).toFixed(1)}`);
    line.setAttribute("points", points.join(" "));
  }

  const connection = new Crawlyard.Live(root, {
    event(event) {
      if (event.kind === "run.counters") show(event.payload);
      else refreshSoon();
    },
    async poll() {
      const answer = await Crawlyard.ask(root.dataset.counters, "application/json");
      const figures = await answer.json();
      show(figures);
      if (figures.state !== body().dataset.state) await refresh();
      sayEnded();
    },
  });
  setInterval(tick, 1000);
  sayEnded();
  lookAgain();
})();

/* Charts of time series, drawn by uPlot: each [data-chart] of the page, also those added later.

   {% load queuestats_tags %}
   {% chart_media %}                                in extrahead, after dashboard.css
   {% chart title=title source=address unit="/s" %}

   The tag writes a <figure data-chart> with translated texts. Attributes:

   data-source        REST address of the points; seconds, or since and until, are added
   data-series        instead: several lines, as JSON: [{"source": ..., "title": ...}]
   data-title         title
   data-unit          %, /s, s, any word; bytes and bytes/s are shown as KB, MB, ...
   data-span          initial range in seconds (3600)
   data-spans         buttons, as JSON: [[300, "5 min"], ...]; []: none (5 min to 7 d)
   data-group         charts of a group share their range
   data-style         lines (default), bars, steps or points
   data-max           upper end of the scale (highest value)
   data-height        pixels (180)
   data-refresh       seconds between two requests, 0: one request (by the step)
   data-time-zone     time zone; the tag writes that of the page (the browser's)
   data-text-...      words of the chart, from the page's language

   A source returns {kind, step, points: [{at, value, highest, low, high}]}, or
   {step, series: [{title, kind, points}]}; null is a gap. Every chart is also a table. */
(function () {
  "use strict";

  const SPANS = [[300, "5 min"], [3600, "1 h"], [21600, "6 h"], [86400, "1 d"], [604800, "7 d"]];
  const LEAST_PAUSE_MS = 5000;
  const MOST_PAUSE_MS = 60000;
  const TROUBLE_PAUSE_MS = 10000;
  const LOGGED_OUT_MS = 30000;
  // Gauges are sampled every few seconds: a shorter time without a sample is not a gap.
  const JOINED_SECONDS = 16;
  const DASHES = [[], [6, 3], [2, 2], [8, 3, 2, 3]];
  const HEIGHT = 180;
  const FEW = 60;
  const SHARES = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5];
  const WHOLE = Array.from({ length: 13 }, (_each, digits) => [1, 2, 5].map((first) => first * 10 ** digits)).flat();
  const { COLOURS, Refused, ask, make, writer, words, newest, count, colours, pointing } = window.CrawlyardChart;

  class Chart {
    constructor(root) {
      this.root = root;
      this.texts = words(root);
      this.title = root.dataset.title || "";
      this.write = writer(root.dataset.unit || "");
      // Counts are integers; a gauge without a unit that stays below 1 is a ratio.
      this.increments = root.dataset.unit ? undefined : (_plot, _axis, _low, high) => (high >= 1 ? WHOLE : SHARES);
      this.sources = root.dataset.series
        ? JSON.parse(root.dataset.series)
        : [{ source: root.dataset.source, title: this.title }];
      this.spans = root.dataset.spans ? JSON.parse(root.dataset.spans) : SPANS;
      this.timed = this.spans.length > 0;
      this.height = Number(root.dataset.height || HEIGHT);
      this.span = Number(root.dataset.span || 3600);
      this.zone = root.dataset.timeZone || undefined;
      this.hidden = new Set();
      this.fixed = null;
      this.lines = [];
      this.step = 1;
      this.turn = 0;
      this.visible = false;
      this.stale = true;
      this.build();
      this.watch();
    }

    build() {
      const id = `cy-chart-${(Chart.made = (Chart.made || 0) + 1)}`;
      this.tableButton = make("button", { type: "button", class: "cy-chart-button", "aria-pressed": "false" }, this.texts.table);
      this.liveButton = make("button", { type: "button", class: "cy-chart-button", hidden: "" }, this.texts.live);
      this.spanButtons = this.spans.map(([seconds, text]) =>
        make("button", { type: "button", class: "cy-chart-button", "data-seconds": seconds, "aria-pressed": String(seconds === this.span) }, text),
      );
      const spans = make("div", { role: "group", "aria-label": this.texts.span, class: "cy-chart-spans" }, ...this.spanButtons);
      const head = make("figcaption", { class: "cy-chart-head", id }, make("span", { class: "cy-chart-title" }, this.title));
      const tools = make("div", { class: "cy-chart-tools" }, this.liveButton, spans, this.tableButton);
      this.plotBox = make("div", { class: "cy-chart-plot", role: "img", "aria-label": this.title });
      this.tableBox = make("div", { class: "cy-chart-table", tabindex: "0", role: "region", "aria-labelledby": id, hidden: "" });
      this.legend = make("ul", { class: "cy-chart-legend" });
      this.note = make("p", { class: "cy-chart-note", role: "status" });
      this.root.classList.add("cy-chart");
      this.root.setAttribute("role", "figure");
      this.root.setAttribute("aria-labelledby", id);
      this.root.replaceChildren(make("div", { class: "cy-chart-bar" }, head, tools), this.plotBox, this.tableBox, this.legend, this.note);
      this.plotBox.style.minHeight = `${this.height}px`;
      for (const button of this.spanButtons) {
        button.addEventListener("click", () => this.choose(Number(button.dataset.seconds)));
      }
      this.tableButton.addEventListener("click", () => this.showTable(this.tableBox.hidden));
      this.liveButton.addEventListener("click", () => this.zoom(null));
    }

    watch() {
      this.resizing = new ResizeObserver(() => this.resize());
      this.resizing.observe(this.plotBox);
      this.seeing = new IntersectionObserver((entries) => {
        this.visible = entries[entries.length - 1].isIntersecting;
        if (this.visible && this.stale) this.refresh();
      }, { rootMargin: "200px" });
      this.seeing.observe(this.root);
    }

    end() {
      this.turn += 1;
      clearTimeout(this.timer);
      this.resizing.disconnect();
      this.seeing.disconnect();
      if (this.plot) this.plot.destroy();
      this.plot = null;
    }

    /* Show another span, up to now. */
    choose(seconds) {
      for (const each of this.group()) {
        each.span = seconds;
        for (const button of each.spanButtons) {
          button.setAttribute("aria-pressed", String(Number(button.dataset.seconds) === seconds));
        }
        each.stand(null);
      }
    }

    /* Show a fixed period; null returns to live. */
    zoom(fixed) {
      for (const each of this.group()) each.stand(fixed);
    }

    stand(fixed) {
      this.fixed = fixed;
      this.liveButton.hidden = fixed === null;
      this.refresh();
    }

    /* Return the charts of the same group. */
    group() {
      const own = this.root.dataset.group;
      return own ? [...charts.values()].filter((each) => each.root.dataset.group === own) : [this];
    }

    address(source) {
      if (!this.timed) return source;
      const url = new URL(source, location.href);
      if (this.fixed === null) {
        url.searchParams.set("seconds", this.span);
      } else {
        const [since, until] = this.fixed;
        url.searchParams.set("since", new Date(1000 * since).toISOString());
        url.searchParams.set("until", new Date(1000 * until).toISOString());
      }
      return url.href;
    }

    async refresh() {
      clearTimeout(this.timer);
      this.stale = true;
      if (!this.visible || document.hidden) return;
      const turn = ++this.turn;
      let pause = TROUBLE_PAUSE_MS;
      const before = performance.now();
      try {
        const answers = await Promise.all(this.sources.map((each) => ask(this.address(each.source))));
        if (turn !== this.turn) return;
        this.take(answers);
        this.stale = false;
        pause = this.pause(performance.now() - before);
      } catch (error) {
        if (turn !== this.turn) return;
        const kind = error instanceof Refused ? error.message : "failed";
        this.say(kind);
        if (kind !== "failed") pause = LOGGED_OUT_MS;
      }
      // A fixed period is not refreshed.
      if (pause !== null) this.timer = setTimeout(() => this.refresh(), pause);
    }

    /* Time until the next refresh, in proportion to the response time. */
    pause(took) {
      if (this.fixed !== null || this.root.dataset.refresh === "0") return null;
      const own = Number(this.root.dataset.refresh || 0) * 1000;
      const usual = Math.min(Math.max(500 * this.step, LEAST_PAUSE_MS), MOST_PAUSE_MS);
      return Math.max(own || usual, 4 * took);
    }

    take(answers) {
      const lines = [];
      answers.forEach(({ body }, at) => {
        const own = this.sources[at];
        for (const each of body.series || [body]) {
          lines.push({ title: each.title || own.title || this.title, kind: each.kind, points: each.points });
        }
      });
      const same = lines.length === this.lines.length && lines.every((line, i) => line.title === this.lines[i].title);
      this.lines = lines;
      this.step = Math.max(1, ...answers.map(({ body }) => Number(body.step) || 1));
      const now = Math.max(...answers.map((answer) => answer.now));
      this.range = this.fixed || [now - this.span, now];
      this.joined();
      const measured = lines.some((line) => line.points.some((point) => point.value !== null));
      this.say(measured ? "" : "empty");
      this.draw(same);
      if (!this.tableBox.hidden) this.fillTable();
      this.legendNow();
    }

    /* Merge the times of all lines. undefined: the line has no point at this time, without a gap. */
    joined() {
      const times = new Set();
      const read = this.lines.map((line) => {
        const found = new Map(line.points.map((point) => [Date.parse(point.at) / 1000, point]));
        for (const time of found.keys()) times.add(time);
        return found;
      });
      this.times = [...times].sort((a, b) => a - b);
      this.rows = read.map((found) => this.times.map((time) => found.get(time)));
      if (!this.timed && this.times.length) {
        const pad = (this.times[this.times.length - 1] - this.times[0]) / 40 || 1800;
        this.range = [this.times[0] - pad, this.times[this.times.length - 1] + pad];
      }
    }

    /* What uPlot draws: the values of each line and, where it has a band, the band's edges.
       `plan` says of each column which line it is of, and whether it is an edge. */
    columns() {
      const columns = [this.times];
      const plan = [];
      const bands = [];
      const add = (line, name, edge) => {
        plan.push({ line, edge });
        return columns.push(this.rows[line].map((point) => (point === undefined ? undefined : (point[name] ?? null)))) - 1;
      };
      this.rows.forEach((row, line) => {
        const has = (name) => row.some((point) => point && typeof point[name] === "number");
        const value = add(line, "value", false);
        if (has("low") && has("high")) bands.push({ line, edges: [add(line, "high", true), add(line, "low", true)] });
        else if (this.rows.length === 1 && has("highest")) bands.push({ line, edges: [add(line, "highest", true), value] });
      });
      return { columns, plan, bands };
    }

    draw(same) {
      const { columns, plan, bands } = this.columns();
      const shape = JSON.stringify(plan);
      if (same && this.plot && shape === this.shape) {
        this.plot.setData(columns);
      } else {
        this.shape = shape;
        this.plan = plan;
        if (this.plot) this.plot.destroy();
        this.colours = colours(this.root);
        this.plot = new uPlot(this.options(bands), columns, this.plotBox);
        this.buildLegend();
      }
      this.summarise();
    }

    options(bands) {
      const { text, line } = this.colours;
      const axis = { stroke: text, font: "11px system-ui, sans-serif", grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1, size: 4 } };
      const wide = (values) => (values ? Math.max(...values.map((each) => (each || "").length)) * 7 + 16 : 40);
      return {
        width: this.plotBox.clientWidth || 300,
        height: this.height,
        tzDate: (seconds) => uPlot.tzDate(new Date(1000 * seconds), this.zone || Intl.DateTimeFormat().resolvedOptions().timeZone),
        legend: { show: false },
        // Leave room on the right for half of the last label.
        padding: [8, 30, 0, 0],
        cursor: { drag: { x: this.timed, y: false, setScale: false }, points: { size: 6 }, sync: { key: "cy-charts", setSeries: false, filters: { pub: pointing } }, y: false },
        scales: { x: { time: true, range: () => this.range }, y: { range: (_plot, low, high) => this.heights(low, high) } },
        axes: [
          { ...axis, space: 54, size: 26, values: (_plot, splits, _axis, _space, step) => splits.map((each) => this.clock(each, step)) },
          { ...axis, ...(this.increments && { incrs: this.increments }), size: (_plot, values) => wide(values), values: (_plot, splits) => splits.map((each) => this.write.brief(each)) },
        ],
        series: [{}, ...this.plan.map((each) => this.plotSeries(each))],
        bands: bands.map((band) => ({ series: band.edges, fill: this.colour(band.line) + "2e" })),
        hooks: { setCursor: [() => this.legendNow()], setSelect: [(plot) => this.selected(plot)] },
      };
    }

    plotSeries({ line, edge }) {
      const show = !this.hidden.has(line);
      if (edge) return { show, width: 0, stroke: "transparent", points: { show: false }, gaps: this.gaps };
      const style = this.root.dataset.style;
      const colour = this.colour(line);
      const paths = { bars: () => uPlot.paths.bars({ size: [0.7, 48] }), steps: () => uPlot.paths.stepped({ align: 1 }) }[style];
      return {
        show,
        stroke: colour,
        width: 1.5,
        dash: DASHES[Math.floor(line / COLOURS) % DASHES.length],
        fill: style === "bars" ? colour + "99" : undefined,
        paths: paths && paths(),
        gaps: this.gaps,
        // Single points between gaps need markers, because no line connects them.
        points: { show: (plot, at) => style === "points" || (!style && count(plot.data[at]) <= FEW), size: 5, fill: colour },
      };
    }

    /* Join points of a gauge that are closer than two samples. */
    get gaps() {
      return (plot, _series, _from, _to, found) => {
        const longest = Math.max(JOINED_SECONDS, 1.5 * this.step);
        const ratio = window.devicePixelRatio || 1;
        const seconds = (px) => plot.posToVal((px - plot.bbox.left) / ratio, "x");
        return found.filter(([from, to]) => seconds(to) - seconds(from) > longest);
      };
    }

    heights(low, high) {
      const most = Number(this.root.dataset.max);
      if (this.root.dataset.max) return [0, Math.max(most, high || 0)];
      if (low === null || high === null) return [0, 1];
      const bottom = Math.min(0, low);
      return [bottom, high > bottom ? high + (high - bottom) * 0.08 : bottom + 1];
    }

    clock(seconds, step) {
      const [date, time] = this.timeText(seconds).split(" ");
      if (step >= 86400) return date.slice(5);
      if (step >= 60) return time.startsWith("00:00") ? date.slice(5) : time.slice(0, 5);
      return time;
    }

    /* Format a time as 2026-11-22 06:01:27 in the time zone of the page. */
    timeText(seconds) {
      this.format =
        this.format ||
        new Intl.DateTimeFormat("sv-SE", { timeZone: this.zone, year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit" });
      return this.format.format(new Date(1000 * seconds));
    }

    colour(line) {
      return this.colours.lines[line % COLOURS];
    }

    selected(plot) {
      const { left, width } = plot.select;
      if (width < 8) return;
      const since = Math.floor(plot.posToVal(left, "x"));
      const until = Math.ceil(plot.posToVal(left + width, "x"));
      plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
      if (until - since >= 10) this.zoom([since, until]);
    }

    resize() {
      const width = this.plotBox.clientWidth;
      if (this.plot && width > 0 && width !== this.plot.width) this.plot.setSize({ width, height: this.height });
    }

    /* Redraw in the colours of another theme. */
    repaint() {
      if (this.plot) this.draw(false);
    }

    say(kind) {
      this.note.dataset.kind = kind;
      this.note.textContent = kind ? this.texts[kind] : "";
    }

    // --- legend: the newest value of each line, or the one under the pointer

    buildLegend() {
      this.values = this.lines.map(() => make("span", { class: "cy-chart-value" }));
      this.legend.replaceChildren(
        ...this.lines.map((line, i) => {
          const swatch = make("span", { class: "cy-chart-swatch", "aria-hidden": "true" });
          swatch.style.backgroundColor = this.colour(i);
          const children = [swatch, make("span", {}, line.title), this.values[i]];
          if (this.lines.length === 1) return make("li", {}, ...children);
          const button = make("button", { type: "button", class: "cy-chart-line", "aria-pressed": String(!this.hidden.has(i)) }, ...children);
          button.addEventListener("click", () => this.toggle(i, button));
          return make("li", {}, button);
        }),
      );
    }

    toggle(line, button) {
      if (!this.hidden.delete(line)) this.hidden.add(line);
      button.setAttribute("aria-pressed", String(!this.hidden.has(line)));
      this.plan.forEach((each, at) => {
        if (each.line === line) this.plot.setSeries(at + 1, { show: !this.hidden.has(line) });
      });
    }

    legendNow() {
      if (!this.plot || !this.values) return;
      const at = this.plot.cursor.idx;
      this.rows.forEach((row, i) => {
        const point = at === null || at === undefined ? newest(row) : row[at];
        const known = point && point.value !== null;
        const when = at === null || at === undefined || !known ? "" : ` · ${this.timeText(this.times[at]).slice(5)}`;
        if (this.values[i]) this.values[i].textContent = (known ? this.write.full(point.value) : "–") + when;
      });
    }

    /* Text alternative of the chart for screen readers. */
    summarise() {
      const texts = this.rows.map((row, i) => {
        const known = row.filter((point) => point && point.value !== null);
        if (known.length === 0) return `${this.lines[i].title}: –`;
        const highest = Math.max(...known.map((point) => point.highest ?? point.value));
        const now = this.write.full(known[known.length - 1].value);
        return `${this.lines[i].title}: ${this.texts.summary.replace("{now}", now).replace("{highest}", this.write.full(highest))}`;
      });
      this.plotBox.setAttribute("aria-label", texts.join("; ") || this.title);
    }

    // --- table view

    showTable(shown) {
      this.tableBox.hidden = !shown;
      this.plotBox.hidden = shown;
      this.legend.hidden = shown;
      this.tableButton.textContent = shown ? this.texts.plot : this.texts.table;
      this.tableButton.setAttribute("aria-pressed", String(shown));
      if (shown) this.fillTable();
      else this.resize();
    }

    fillTable() {
      const peaks = this.rows.map((row) => row.some((point) => point && typeof point.highest === "number"));
      const names = this.lines.flatMap((line, i) => (peaks[i] ? [line.title, `${line.title} (${this.texts.highest})`] : [line.title]));
      const heads = [this.texts.time, ...names].map((name, i) => make("th", { scope: "col", class: i ? "cy-number" : null }, name));
      const say = (value) => (typeof value === "number" ? this.write.full(value) : "–");
      const rows = [];
      for (let at = this.times.length - 1; at >= 0; at -= 1) {
        const points = this.rows.map((row) => row[at]);
        if (points.every((point) => !point || point.value === null)) continue;
        const cells = points.flatMap((point, i) => [say(point?.value), ...(peaks[i] ? [say(point?.highest)] : [])]);
        rows.push(make("tr", {}, make("th", { scope: "row" }, this.timeText(this.times[at])), ...cells.map((text) => make("td", { class: "cy-number" }, text))));
      }
      this.tableBox.replaceChildren(
        make("table", {}, make("caption", {}, this.title), make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...rows)),
      );
    }
  }

  const charts = new Map();

  /* Start new charts of the page, stop removed ones. */
  function look() {
    for (const [root, chart] of charts) {
      if (!root.isConnected) {
        chart.end();
        charts.delete(root);
      }
    }
    for (const root of document.querySelectorAll("[data-chart]")) {
      if (!charts.has(root)) charts.set(root, new Chart(root));
    }
  }

  function begin() {
    look();
    new MutationObserver((changes) => {
      const other = (change) => !change.target.closest || change.target.closest("[data-chart]") === null;
      if (changes.some(other)) look();
    }).observe(document.body, { childList: true, subtree: true });
    let theme = document.documentElement.className;
    new MutationObserver(() => {
      if (document.documentElement.className === theme) return;
      theme = document.documentElement.className;
      for (const chart of charts.values()) chart.repaint();
    }).observe(document.documentElement, { attributes: true, attributeFilter: ["class"] });
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden) for (const chart of charts.values()) chart.refresh();
    });
  }

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", begin);
  else begin();
})();

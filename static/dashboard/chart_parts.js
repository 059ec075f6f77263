/* Parts of charts besides uPlot: requests, texts and number formats. Loaded before chart.js. */
(function () {
  "use strict";

  const TEXTS = {
    table: "Show as table",
    plot: "Show as chart",
    empty: "Nothing was measured in this time.",
    failed: "No answer from the server; what you see may be old.",
    login: "You are no longer logged in. Reload the page.",
    missing: "There is nothing here any more, or you may not see it.",
    live: "Back to now",
    time: "Time",
    highest: "highest",
    span: "How far back",
    summary: "now {now}, highest {highest}",
  };
  const COLOURS = 6;
  const LANGUAGE = document.documentElement.lang || "en";

  class Refused extends Error {}

  async function ask(address) {
    const answer = await fetch(address, {
      headers: { Accept: "application/json", "X-Requested-With": "XMLHttpRequest" },
      credentials: "same-origin",
      cache: "no-store",
      redirect: "manual",
    });
    if (answer.type === "opaqueredirect" || answer.status === 401) throw new Refused("login");
    if (answer.status === 403 || answer.status === 404) throw new Refused("missing");
    if (!answer.ok) throw new Error(String(answer.status));
    // Use the server's clock: the browser's may be wrong.
    const date = Date.parse(answer.headers.get("date") || "");
    return { body: await answer.json(), now: (Number.isNaN(date) ? Date.now() : date) / 1000 };
  }

  function make(tag, attributes, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value !== null && value !== undefined) element.setAttribute(name, value);
    }
    element.append(...children);
    return element;
  }

  const fine = new Intl.NumberFormat("en-US", { maximumFractionDigits: 2 });
  const short = new Intl.NumberFormat(LANGUAGE, { notation: "compact", maximumFractionDigits: 1 });

  function sized(bytes) {
    let amount = bytes;
    for (const unit of ["B", "KB", "MB", "GB"]) {
      if (Math.abs(amount) < 1024) return `${fine.format(Number(amount.toFixed(1)))} ${unit}`;
      amount /= 1024;
    }
    return `${fine.format(Number(amount.toFixed(1)))} TB`;
  }

  /* Format numbers with their unit: "bytes" and "bytes/s" in KB, MB, …. */
  function writer(unit) {
    const [what, per] = unit.split("/");
    if (what === "bytes") {
      const end = per ? `/${per}` : "";
      return { full: (value) => sized(value) + end, brief: (value) => sized(value) + end };
    }
    const gap = unit === "" || unit === "%" || unit[0] === "/" ? unit : ` ${unit}`;
    return {
      full: (value) => (unit === "%" ? fine.format(value) + " %" : fine.format(value) + gap),
      brief: (value) => (Math.abs(value) < 1000 ? fine.format(value) : short.format(value)) + (unit === "%" ? " %" : unit[0] === "/" ? unit : ""),
    };
  }

  function words(root) {
    const own = {};
    for (const name of Object.keys(TEXTS)) {
      own[name] = root.dataset["text" + name[0].toUpperCase() + name.slice(1)] || TEXTS[name];
    }
    return own;
  }

  function newest(row) {
    for (let at = row.length - 1; at >= 0; at -= 1) {
      if (row[at] && row[at].value !== null) return row[at];
    }
    return undefined;
  }

  /* Read the colours of chart.css, which differ by theme. */
  function colours(root) {
    const style = getComputedStyle(root);
    const named = (name) => style.getPropertyValue(name).trim();
    return {
      text: named("--cy-chart-text"),
      line: named("--cy-chart-grid"),
      lines: Array.from({ length: COLOURS }, (_each, i) => named(`--cy-chart-${i + 1}`)),
    };
  }

  const count = (values) => values.reduce((sum, value) => sum + (typeof value === "number"), 0);

  // Charts of a page show the same moment under the pointer; what is dragged is of one of them.
  const pointing = (kind) => kind === "mousemove" || kind === "mouseleave";

  window.CrawlyardChart = { COLOURS, Refused, ask, make, writer, words, newest, count, colours, pointing };
})();

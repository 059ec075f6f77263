/* The lines of a log as a page shows them. What a line holds becomes text and never HTML. */
(function () {
  "use strict";

  const SHOWN_CHARACTERS = 600;

  /* `texts`: what to say, as data-text-…; `filtered`: whether lines are left out on purpose. */
  window.CrawlyardRows = class {
    constructor(list, texts, filtered) {
      this.list = list;
      this.texts = texts;
      this.filtered = filtered;
      this.missing = [];
      this.forgotten = 0;
      list.addEventListener("keydown", (event) => this.keyPressed(event));
    }

    /* Which lines are not there, as the server tells it with every answer. */
    know(page) {
      this.missing = page.missing;
      this.forgotten = page.forgotten;
    }

    at(place) {
      return this.list.querySelector(`[data-ref="${place}"]`);
    }

    first() {
      return this.edge("firstElementChild", "nextElementSibling");
    }

    last() {
      return this.edge("lastElementChild", "previousElementSibling");
    }

    /* The first or the last line that is shown, if any; between lines stand marks. */
    edge(end, step) {
      let row = this.list[end];
      while (row !== null && row.dataset.ref === undefined) row = row[step];
      if (row === null) return null;
      return { ref: row.dataset.ref, boot: Number(row.dataset.boot), seq: Number(row.dataset.seq) };
    }

    /* Enter leads from the list to its lines, the arrows from one to the next. */
    keyPressed(event) {
      if (event.target === this.list) {
        if (event.key !== "Enter") return;
        const top = this.list.scrollTop;
        const rows = this.list.querySelectorAll("[data-ref]");
        const row = [...rows].find((each) => each.offsetTop + each.offsetHeight > top);
        if (row !== undefined) row.querySelector("a").focus();
        event.preventDefault();
        return;
      }
      const step = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
      let row = event.target.closest("[data-ref]");
      if (step === undefined || row === null) return;
      do row = row[step];
      while (row !== null && row.dataset.ref === undefined);
      if (row !== null) row.querySelector("a").focus();
      event.preventDefault();
    }

    /* Rows of these lines, with marks between them; `before`: the line above, if that is known. */
    of(lines, before) {
      const rows = [];
      for (const line of lines) {
        if (before !== null) rows.push(...this.between(before, line));
        before = line;
        rows.push(this.row(line));
      }
      return rows;
    }

    /* What is to be said between two lines: a new beginning, or lines that are not there. */
    between(above, below) {
      const rows = [];
      if (above.boot !== below.boot) rows.push(part("cy-log-mark", this.texts.textBoot));
      const first = above.boot === below.boot ? above.seq + 1 : 1;
      if (below.seq > first && !this.filtered()) {
        const count = below.seq - first;
        const lost = this.forgotten === 0 ? count : this.lost(below.boot, first, below.seq - 1);
        if (lost > 0) rows.push(this.gapRow(lost, this.texts.textMissing));
        if (count > lost) rows.push(this.gapRow(count - lost, this.texts.textForgotten));
      }
      return rows;
    }

    /* Of the lines that are not there, those that never came. */
    lost(boot, first, last) {
      let count = 0;
      for (const span of this.missing) {
        if (span.boot !== boot) continue;
        count += Math.max(0, Math.min(last, span.last) - Math.max(first, span.first) + 1);
      }
      return count;
    }

    gapRow(count, text) {
      const row = part("cy-log-mark", text.replace("{count}", Crawlyard.count(count)));
      row.dataset.gap = count;
      return row;
    }

    row(line) {
      const row = document.createElement("div");
      row.className = "cy-log-line";
      row.dataset.level = line.level;
      row.dataset.ref = line.ref;
      row.dataset.boot = line.boot;
      row.dataset.seq = line.seq;
      const at = document.createElement("a");
      at.className = "cy-log-at";
      at.textContent = line.at.slice(11, 19);
      at.href = `#${line.ref}`;
      // Reached by the arrows: thousands of stops for the tab key would be a trap.
      at.tabIndex = -1;
      at.title = [line.at, line.source, line.ref].filter(Boolean).join(" · ");
      row.append(at, " ");
      // Many lines begin with their level themselves.
      if (line.level && !line.text.startsWith(line.level)) {
        row.classList.add("cy-log-labelled");
        row.append(part("cy-log-level", line.level), " ");
      }
      row.append(this.text(line.text));
      return row;
    }

    text(whole) {
      const shown = part("cy-log-text", whole);
      if (whole.length <= SHOWN_CHARACTERS) return shown;
      shown.textContent = whole.slice(0, SHOWN_CHARACTERS) + "… ";
      const rest = document.createElement("button");
      rest.type = "button";
      rest.className = "cy-log-rest";
      rest.textContent = this.texts.textRest.replace("{count}", Crawlyard.count(whole.length));
      rest.addEventListener("click", () => (shown.textContent = whole));
      shown.append(rest);
      return shown;
    }
  };

  function part(name, text) {
    const element = document.createElement("span");
    element.className = name;
    element.textContent = text;
    return element;
  }
})();

/* The live tail of a log. The socket only says that it has grown; lines come by REST. What a line
   holds becomes text and never HTML. */
(function () {
  "use strict";

  const PAGE = 500;
  const CATCH_UP = 1000;
  const CATCH_UP_PAGES = 4;
  // So many lines stay in the page: while it follows the log, and while somebody reads in it.
  const KEPT_FOLLOWING = 2000;
  const KEPT_READING = 5000;
  const SOON_MS = 300;
  const TYPING_MS = 300;
  const RETRY_MS = 3000;
  const NEAR_PX = 24;
  const OLDER_PX = 400;
  const SHOWN_CHARACTERS = 600;

  class Log {
    constructor(root) {
      this.root = root;
      this.list = root.querySelector("[data-list]");
      this.newest = root.querySelector("[data-newest]");
      this.empty = root.querySelector("[data-empty]");
      this.pauseButton = root.querySelector("[data-pause]");
      this.level = root.querySelector("[data-levels]");
      this.contains = root.querySelector("[data-contains]");
      this.paused = false;
      this.timer = null;
      this.wanted = false;
      this.turn = 0;
      this.clear();
      this.listen();
      this.connection = new Crawlyard.Live(root, {
        event: () => this.soon(),
        poll: () =>
          this.catchUp().catch((error) => {
            setTimeout(() => this.soon(), RETRY_MS);
            throw error;
          }),
      });
      this.connection.poll();
    }

    listen() {
      this.list.addEventListener("scroll", () => this.scrolled(), { passive: true });
      this.newest.addEventListener("click", () => this.jump());
      this.pauseButton.addEventListener("click", () => this.pause(!this.paused));
      this.level.addEventListener("change", () => this.reload());
      let typing = null;
      this.contains.addEventListener("input", () => {
        clearTimeout(typing);
        typing = setTimeout(() => this.reload(), TYPING_MS);
      });
      document.addEventListener("visibilitychange", () => document.hidden || this.soon());
    }

    /* Forget all lines; `first` and `last` are ids, `behind`: the end of the log is not here. */
    clear() {
      this.turn += 1;
      this.list.replaceChildren();
      this.first = null;
      this.last = null;
      this.older = false;
      this.behind = false;
      this.following = true;
      this.waiting = 0;
      this.loading = false;
      this.newest.hidden = true;
    }

    reload() {
      this.clear();
      this.pause(false);
      this.soon();
    }

    pause(paused) {
      this.paused = paused;
      this.pauseButton.setAttribute("aria-pressed", String(paused));
      this.pauseButton.textContent = paused ? this.root.dataset.textResume : this.root.dataset.textPause;
      if (!paused) this.soon();
    }

    jump() {
      if (this.behind) this.reload();
      else {
        this.following = true;
        this.toEnd();
      }
    }

    // --- asking -------------------------------------------------------------------------------

    /* Ask in a moment; what comes while a question is under way is asked for after it. */
    soon() {
      this.wanted = true;
      if (this.timer !== null) return;
      this.timer = setTimeout(() => {
        this.timer = null;
        if (this.connection.asking) this.soon();
        else if (this.wanted) this.connection.poll();
      }, SOON_MS);
    }

    async ask(way) {
      const query = new URLSearchParams(way);
      for (const level of this.level.value.split(",")) if (level) query.append("level", level);
      if (this.contains.value) query.append("contains", this.contains.value);
      const turn = this.turn;
      const answer = await Crawlyard.ask(`${this.root.dataset.lines}?${query}`, "application/json");
      const page = await answer.json();
      // The filter was changed meanwhile: this is no answer to it.
      if (turn !== this.turn) return null;
      this.showDropped(page.dropped);
      return page;
    }

    async catchUp() {
      this.wanted = false;
      if (this.paused) return;
      if (this.last === null) return this.begin();
      if (this.behind) return;
      if (this.loading) {
        this.soon();
        return;
      }
      for (let pages = 0; pages < CATCH_UP_PAGES; pages += 1) {
        const page = await this.ask({ after: this.last, limit: CATCH_UP });
        if (page === null) return;
        this.append(page.results);
        if (page.next === null || this.behind) return;
      }
      // It grows faster than a person reads: go on at its end.
      if (this.following) this.clear();
      else this.behind = true;
      this.soon();
    }

    async begin() {
      const page = await this.ask({ tail: PAGE });
      if (page === null) return;
      this.older = page.previous !== null;
      if (page.results.length > 0) this.append(page.results);
      this.showEmpty();
    }

    async loadOlder() {
      if (!this.older || this.loading || this.first === null) return;
      await this.load({ before: this.first, limit: PAGE }, (page) => {
        this.older = page.previous !== null;
        this.prepend(page.results);
      });
    }

    async loadNewer() {
      if (!this.behind || this.loading) return;
      await this.load({ after: this.last, limit: PAGE }, (page) => {
        this.behind = page.next !== null;
        this.append(page.results);
      });
    }

    async load(way, show) {
      this.loading = true;
      try {
        const page = await this.ask(way);
        if (page !== null) show(page);
      } catch {
        // The next scroll asks again; that nobody is logged in says the connection.
      } finally {
        this.loading = false;
      }
    }

    // --- showing ------------------------------------------------------------------------------

    append(lines) {
      if (lines.length === 0) return;
      const end = this.list.lastElementChild;
      this.list.append(...this.rows(lines, end === null ? lines[0].boot : end.dataset.boot));
      if (this.first === null) this.first = lines[0].id;
      this.last = lines[lines.length - 1].id;
      if (this.following) {
        this.trimTop(KEPT_FOLLOWING);
        this.toEnd();
      } else {
        this.waiting += lines.length;
        this.keepPlace(() => this.trimTop(KEPT_READING));
      }
      this.showEmpty();
      this.showNewest();
    }

    prepend(lines) {
      if (lines.length === 0) return;
      const rows = this.rows(lines, lines[0].boot);
      const below = this.list.firstElementChild;
      if (below !== null && below.dataset.boot !== lines[lines.length - 1].boot) {
        rows.push(this.bootRow(below.dataset));
      }
      this.keepPlace(() => this.list.prepend(...rows));
      this.first = lines[0].id;
      if (this.list.childElementCount > KEPT_READING) {
        while (this.list.childElementCount > KEPT_READING) this.list.lastElementChild.remove();
        this.last = Number(this.list.lastElementChild.dataset.id) || this.last;
        this.behind = true;
        this.following = false;
        this.showNewest();
      }
    }

    trimTop(kept) {
      let over = this.list.childElementCount - kept;
      if (over <= 0) return;
      while (over > 0) {
        this.list.firstElementChild.remove();
        over -= 1;
      }
      this.older = true;
      this.first = Number(this.list.querySelector("[data-id]").dataset.id);
    }

    /* Change what stands above, and stay at the line that is looked at. */
    keepPlace(change) {
      const fromEnd = this.list.scrollHeight - this.list.scrollTop;
      const before = this.list.scrollHeight;
      change();
      if (this.list.scrollHeight !== before) this.list.scrollTop = this.list.scrollHeight - fromEnd;
    }

    toEnd() {
      this.waiting = 0;
      this.list.scrollTop = this.list.scrollHeight;
      this.showNewest();
    }

    scrolled() {
      const below = this.list.scrollHeight - this.list.scrollTop - this.list.clientHeight;
      const atEnd = below < NEAR_PX;
      this.following = atEnd && !this.behind;
      if (this.following) this.waiting = 0;
      this.showNewest();
      if (atEnd) this.loadNewer();
      if (this.list.scrollTop < OLDER_PX) this.loadOlder();
    }

    /* Rows of these lines, with a mark wherever the run was started again. */
    rows(lines, boot) {
      const rows = [];
      for (const line of lines) {
        if (line.boot !== boot) rows.push(this.bootRow(line));
        boot = line.boot;
        rows.push(this.row(line));
      }
      return rows;
    }

    row(line) {
      const row = document.createElement("div");
      row.className = "cy-log-line";
      row.dataset.level = line.level;
      row.dataset.id = line.id;
      row.dataset.boot = line.boot;
      const at = part("cy-log-at", line.at.slice(11, 19));
      at.title = line.source ? `${line.at} ${line.source}` : line.at;
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
      rest.textContent = this.root.dataset.textRest.replace("{count}", Crawlyard.count(whole.length));
      rest.addEventListener("click", () => (shown.textContent = whole));
      shown.append(rest);
      return shown;
    }

    bootRow(line) {
      const row = part("cy-log-boot", this.root.dataset.textBoot);
      row.dataset.id = line.id;
      row.dataset.boot = line.boot;
      return row;
    }

    showDropped(dropped) {
      const note = this.root.querySelector("[data-dropped]");
      note.hidden = dropped === 0;
      note.textContent = this.root.dataset.textDropped.replace("{count}", Crawlyard.count(dropped));
    }

    showEmpty() {
      this.empty.hidden = this.list.childElementCount > 0;
      const filtered = this.level.value !== "" || this.contains.value !== "";
      this.empty.textContent = filtered ? this.root.dataset.textNothing : this.root.dataset.textEmpty;
    }

    showNewest() {
      this.newest.hidden = this.following || this.list.childElementCount === 0;
      const waiting = this.waiting > 0 ? ` (${Crawlyard.count(this.waiting)})` : "";
      this.newest.textContent = this.root.dataset.textNewest + waiting;
    }
  }

  function part(name, text) {
    const element = document.createElement("span");
    element.className = name;
    element.textContent = text;
    return element;
  }

  const roots = [...document.querySelectorAll("[data-log]:not([data-started])")];
  const start = () => roots.forEach((root) => new Log(root));
  for (const root of roots) root.dataset.started = "";
  if (roots.length > 0 && window.Crawlyard === undefined) {
    const script = document.createElement("script");
    script.src = roots[0].dataset.live;
    script.addEventListener("load", start);
    document.head.append(script);
  } else start();
})();

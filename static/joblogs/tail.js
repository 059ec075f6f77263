/* The live tail of a log. The socket only says that it has grown; lines come by REST. How they are
   shown says rows.js, which comes first. */
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
  // The server holds lines back for a while whose predecessors have not come.
  const HELD_BACK_MS = 6000;
  const NEAR_PX = 24;
  const OLDER_PX = 400;
  // The place of a line in its log, as in #2.1234.
  const PLACE = /^#([1-9][0-9]{0,8}\.(?:0|[1-9][0-9]{0,17}))$/;

  class Log {
    constructor(root) {
      this.root = root;
      this.list = root.querySelector("[data-list]");
      this.newest = root.querySelector("[data-newest]");
      this.empty = root.querySelector("[data-empty]");
      this.pauseButton = root.querySelector("[data-pause]");
      this.level = root.querySelector("[data-levels]");
      this.contains = root.querySelector("[data-contains]");
      this.note = root.querySelector("[data-note]");
      this.firstError = root.querySelector("[data-first-error]");
      this.paused = false;
      this.timer = null;
      this.later = null;
      this.wanted = false;
      this.turn = 0;
      this.rows = new CrawlyardRows(this.list, root.dataset, () => this.filtered());
      this.clear();
      this.target = placeInAddress();
      this.listen();
      this.connection = new Crawlyard.Live(root, {
        event: () => this.grew(),
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
      this.firstError.addEventListener("click", () => this.goToFirstError());
      window.addEventListener("hashchange", () => {
        const place = placeInAddress();
        if (place !== null) this.goTo(place);
      });
      this.level.addEventListener("change", () => {
        this.showDownloads();
        this.reload();
      });
      let typing = null;
      this.contains.addEventListener("input", () => {
        clearTimeout(typing);
        typing = setTimeout(() => this.reload(), TYPING_MS);
      });
      document.addEventListener("visibilitychange", () => document.hidden || this.soon());
    }

    /* Forget all lines; `first` and `last` are places, `behind`: the end of the log is not here. */
    clear() {
      this.turn += 1;
      this.target = null;
      this.note.hidden = true;
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

    // --- going to a line ------------------------------------------------------------------------

    goTo(place) {
      const row = this.rows.at(place);
      if (row !== null) {
        this.show(row);
        return;
      }
      // What is looked for is shown, whatever filter is set.
      this.level.value = "";
      this.contains.value = "";
      this.showDownloads();
      this.clear();
      this.target = place;
      this.pause(false);
      this.soon();
    }

    async goToFirstError() {
      try {
        const answer = await Crawlyard.ask(`${this.root.dataset.lines}/first-error`, "application/json");
        const line = (await answer.json()).line;
        if (line === null) this.say(this.root.dataset.textNoError);
        else if (location.hash === `#${line.ref}`) this.goTo(line.ref);
        else location.hash = line.ref;
      } catch {
        this.say(this.root.dataset.textPolling);
      }
    }

    show(row) {
      for (const each of this.list.querySelectorAll("[aria-current]")) each.removeAttribute("aria-current");
      row.setAttribute("aria-current", "true");
      const middle = (this.list.clientHeight - row.offsetHeight) / 2;
      this.list.scrollTop = row.offsetTop - Math.max(0, middle);
      this.root.scrollIntoView({ block: "nearest" });
      this.scrolled();
    }

    say(text) {
      this.note.textContent = text;
      this.note.hidden = false;
    }

    // --- asking -------------------------------------------------------------------------------

    grew() {
      this.soon();
      clearTimeout(this.later);
      this.later = setTimeout(() => this.soon(), HELD_BACK_MS);
    }

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
      this.rows.know(page);
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
        const after = this.last;
        const page = await this.ask({ after, limit: CATCH_UP });
        // Whoever reads far above has let go of the end meanwhile.
        if (page === null || this.last !== after) return;
        this.append(page.results);
        if (page.next === null) return;
      }
      // It grows faster than a person reads: go on at its end.
      if (this.following) this.clear();
      else this.behind = true;
      this.soon();
    }

    async begin() {
      const target = this.target;
      const page = await this.ask(target === null ? { tail: PAGE } : { around: target, limit: PAGE });
      if (page === null) return;
      this.older = page.previous !== null;
      this.behind = page.next !== null;
      if (target !== null) this.following = false;
      if (page.results.length > 0) this.append(page.results);
      this.showEmpty();
      if (target !== null) this.arrive(target);
    }

    arrive(target) {
      this.target = null;
      this.waiting = 0;
      const row = this.rows.at(target);
      if (row !== null) this.show(row);
      else this.say(this.root.dataset.textGone);
      this.showNewest();
    }

    async loadOlder() {
      if (!this.older || this.loading || this.first === null) return;
      const before = this.first;
      await this.load({ before, limit: PAGE }, (page) => {
        // The log has grown so much meanwhile that its upper lines have gone from the page.
        if (this.first !== before) return;
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
      this.list.append(...this.rows.of(lines, this.rows.last() ?? this.above(lines[0])));
      if (this.first === null) this.first = lines[0].ref;
      this.last = lines[lines.length - 1].ref;
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

    /* What stands above the first line of the log; null where there are older ones. */
    above(line) {
      return this.older ? null : { boot: line.boot, seq: 0 };
    }

    prepend(lines) {
      if (lines.length === 0) return;
      const rows = this.rows.of(lines, this.above(lines[0]));
      const below = this.rows.first();
      if (below !== null) rows.push(...this.rows.between(lines[lines.length - 1], below));
      this.keepPlace(() => this.list.prepend(...rows));
      this.first = lines[0].ref;
      if (this.list.childElementCount > KEPT_READING) {
        while (this.list.childElementCount > KEPT_READING) this.list.lastElementChild.remove();
        this.last = this.rows.last().ref;
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
      this.first = this.rows.first().ref;
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

    filtered() {
      return this.level.value !== "" || this.contains.value !== "";
    }

    showDropped(dropped) {
      const note = this.root.querySelector("[data-dropped]");
      note.hidden = dropped === 0;
      note.textContent = this.root.dataset.textDropped.replace("{count}", Crawlyard.count(dropped));
    }

    showEmpty() {
      this.empty.hidden = this.list.childElementCount > 0;
      this.empty.textContent = this.filtered() ? this.root.dataset.textNothing : this.root.dataset.textEmpty;
    }

    /* The files hold the levels that are shown. */
    showDownloads() {
      for (const link of this.root.querySelectorAll("[data-download]")) {
        const query = new URLSearchParams({ type: link.dataset.download });
        for (const level of this.level.value.split(",")) if (level) query.append("level", level);
        link.href = `${this.root.dataset.lines}/download?${query}`;
      }
    }

    showNewest() {
      this.newest.hidden = this.following || this.list.childElementCount === 0;
      const waiting = this.waiting > 0 ? ` (${Crawlyard.count(this.waiting)})` : "";
      this.newest.textContent = this.root.dataset.textNewest + waiting;
    }
  }

  function placeInAddress() {
    const found = PLACE.exec(location.hash);
    return found === null ? null : found[1];
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

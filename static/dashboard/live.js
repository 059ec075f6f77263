/* Shared by the live pages: a socket that reconnects, and number formats, which are the same as in
   apps/dashboard/templatetags/dashboard_tags.py. */
(function () {
  "use strict";

  const RETRY_MS = [500, 1000, 2000, 5000, 10000];
  const POLL_MS = 3000;
  const LOGGED_OUT_MS = 30000;
  const RATE_WINDOW_MS = 10000;
  const STEADY_MS = 15000;

  /* Connects, reconnects and, while there is no connection, calls `poll` every few seconds.
     `poll` is also called once after each connect: what happened before is not sent again. */
  class Live {
    constructor(root, handlers) {
      this.root = root;
      this.handlers = handlers;
      this.label = root.querySelector("[data-connection]");
      // The run has ended: the label no longer says "Live".
      const ended = new MutationObserver(() => this.kind && this.say(this.kind));
      ended.observe(root, { attributeFilter: ["data-ended"] });
      this.attempt = 0;
      this.up = false;
      this.asking = false;
      this.askAgainAt = 0;
      this.connect();
      setInterval(() => this.up || this.poll(), POLL_MS);
      window.addEventListener("online", () => this.hurry());
      document.addEventListener("visibilitychange", () => document.hidden || this.hurry());
    }

    connect() {
      const scheme = location.protocol === "https:" ? "wss://" : "ws://";
      const socket = new WebSocket(scheme + location.host + this.root.dataset.socket);
      this.socket = socket;
      socket.onopen = () => {
        this.up = true;
        this.attempt = 0;
        this.say("live");
        this.poll();
      };
      socket.onmessage = (message) => {
        for (const event of JSON.parse(message.data).events) this.handlers.event(event);
      };
      socket.onclose = () => {
        if (this.socket !== socket) return;
        if (this.up || this.attempt > 0) this.say("polling");
        this.up = false;
        const pause = RETRY_MS[Math.min(this.attempt, RETRY_MS.length - 1)];
        this.attempt += 1;
        this.retry = setTimeout(() => this.connect(), pause * (0.75 + Math.random() / 2));
      };
    }

    hurry() {
      if (this.up || this.socket.readyState === WebSocket.CONNECTING) return;
      clearTimeout(this.retry);
      this.connect();
    }

    async poll() {
      if (this.asking || document.hidden || performance.now() < this.askAgainAt) return;
      this.asking = true;
      try {
        await this.handlers.poll();
        if (this.label.dataset.kind === "login") this.say(this.up ? "live" : "polling");
      } catch (error) {
        if (error instanceof LoggedOut) {
          this.say("login");
          this.askAgainAt = performance.now() + LOGGED_OUT_MS;
        }
      } finally {
        this.asking = false;
      }
    }

    say(what) {
      const kind = what === "live" && "ended" in this.root.dataset ? "ended" : what;
      this.kind = kind;
      this.label.dataset.kind = kind;
      const word = kind[0].toUpperCase() + kind.slice(1);
      this.label.textContent = this.root.dataset["text" + word] || "";
    }
  }

  class LoggedOut extends Error {}

  async function ask(address, accept) {
    const answer = await fetch(address, {
      headers: { Accept: accept, "X-Requested-With": "XMLHttpRequest" },
      credentials: "same-origin",
      cache: "no-store",
      redirect: "manual",
    });
    // A page that needs a login redirects to it; REST answers 401 or 403.
    if (answer.type === "opaqueredirect" || [401, 403, 404].includes(answer.status)) {
      throw new LoggedOut();
    }
    if (!answer.ok) throw new Error(String(answer.status));
    return answer;
  }

  /* Pages per second over the last ten seconds; it falls to 0 without new reports. */
  class Rate {
    constructor() {
      this.samples = [];
    }

    add(value) {
      const now = performance.now();
      this.samples.push({ at: now, value });
      while (this.samples.length > 2 && now - this.samples[1].at > RATE_WINDOW_MS) {
        this.samples.shift();
      }
    }

    now() {
      if (this.samples.length < 2) return null;
      const now = performance.now();
      const last = this.samples[this.samples.length - 1];
      let first = this.samples[0];
      for (const sample of this.samples) {
        if (now - sample.at > RATE_WINDOW_MS) first = sample;
      }
      const seconds = Math.max(now - first.at, 1000) / 1000;
      return Math.max(0, last.value - first.value) / seconds;
    }
  }

  const count = (value) => Number(value).toLocaleString("en-US");

  function size(bytes) {
    let amount = bytes;
    for (const unit of ["B", "KB", "MB", "GB"]) {
      if (amount < 1024) return (unit === "B" ? amount.toFixed(0) : amount.toFixed(1)) + " " + unit;
      amount /= 1024;
    }
    return amount.toFixed(1) + " TB";
  }

  function clock(seconds) {
    const whole = Math.max(0, Math.floor(seconds));
    const two = (value) => String(value).padStart(2, "0");
    const hours = Math.floor(whole / 3600);
    const minutes = Math.floor(whole / 60) % 60;
    const rest = two(whole % 60);
    return hours ? hours + ":" + two(minutes) + ":" + rest : minutes + ":" + rest;
  }

  const rateText = (rate) => (rate === null ? "–" : rate.toFixed(rate < 10 ? 1 : 0));

  const totals = new Map();

  /* Whether the total of a run may still grow much, so that a percentage would mislead. */
  function isOpen(figures) {
    if (figures.final) return false;
    const now = performance.now();
    const known = totals.get(figures.run);
    if (known === undefined || known.total !== figures.total) {
      totals.set(figures.run, { total: figures.total, at: now });
      return true;
    }
    return now - known.at < STEADY_MS;
  }

  /* Write the counters of one run into their elements. */
  function write(element, figures) {
    for (const target of element.querySelectorAll("[data-counter]")) {
      const name = target.dataset.counter;
      if (name in figures) target.textContent = count(figures[name]);
    }
    for (const target of element.querySelectorAll("[data-size]")) {
      if (target.dataset.size in figures) target.textContent = size(figures[target.dataset.size]);
    }
    const total = figures.total;
    const part = (value) => (total > 0 ? (100 * value) / total : 0);
    const success = part(figures.success);
    const failed = part(figures.failed);
    const open = isOpen(figures);
    for (const bar of element.querySelectorAll("[data-bar]")) {
      bar.toggleAttribute("data-open", open);
      bar.querySelector("[data-part=success]").setAttribute("width", success);
      const second = bar.querySelector("[data-part=failed]");
      second.setAttribute("x", success);
      second.setAttribute("width", failed);
      bar.setAttribute("aria-valuemax", total);
      if (open) bar.removeAttribute("aria-valuenow");
      else bar.setAttribute("aria-valuenow", figures.success + figures.failed);
    }
    for (const target of element.querySelectorAll("[data-percent]")) {
      target.textContent = open ? "" : Math.floor(success + failed) + " %";
    }
  }

  /* Ignore late messages: the number of finished requests never falls. */
  const isOlder = (figures, shown) =>
    shown !== undefined &&
    (figures.success + figures.failed < shown.success + shown.failed ||
      figures.total < shown.total ||
      (shown.final && !figures.final));

  /* Whether the HTML of the server is newer than these counters. */
  const saysMore = (element, figures) =>
    Number(element.dataset.done) > figures.success + figures.failed;

  document.addEventListener("submit", (event) => {
    const question = event.target.dataset.confirm;
    if (question && !window.confirm(question)) event.preventDefault();
  });

  window.Crawlyard = { Live, Rate, LoggedOut, ask, write, isOlder, saysMore, rateText, clock, count, size };
})();

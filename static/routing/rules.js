/* The editor of the rules. The draft lives in this page alone: a list of entries, each of them an
   entry of the version that was loaded and what was typed since. The server reads and judges it. */
(function () {
  "use strict";

  const CHECK_MS = 400;
  const KINDS = ["inbound", "outbound"];

  const root = document.getElementById("rules");
  if (root === null) return;
  const { Form, make } = window.CrawlyardRules;
  const data = JSON.parse(document.getElementById("rules-data").textContent);
  const words = data.words;
  let numbers = 0;

  const say = (text, values) =>
    text.replace(/%\((\w+)\)s/g, (whole, name) => (name in values ? String(values[name]) : whole));
  const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);

  class Entry {
    constructor(from, base, typed = {}) {
      this.id = (numbers += 1);
      this.from = from;
      this.base = base;
      this.typed = typed;
      this.wrong = [];
    }

    get(name) {
      return name in this.typed ? this.typed[name] : this.base[name];
    }

    set(name, value) {
      if (same(value, this.base[name]) || (value === "" && this.base[name] === undefined)) {
        delete this.typed[name];
      } else this.typed[name] = value;
    }

    isTyped(name) {
      return name in this.typed;
    }

    names(start) {
      return [...new Set([...Object.keys(this.base), ...Object.keys(this.typed)])].filter((name) =>
        name.startsWith(start),
      );
    }
  }

  const draft = { rules: new Entry(null, data.state.rules) };
  for (const of of KINDS) {
    draft[of] = data.state[of].map((base, at) => new Entry(at, base));
  }
  // What a new one begins with: the server fills in all that is not typed.
  const EMPTY = {
    inbound: { name: "", class: "", note: "", selector: [], convert: [], disable: false },
    outbound: {
      name: "", class: "", note: "", selector: [], disable: false, overflow: "hold",
      failback: "", task_params_wrapped: false, reset_retry_times: false,
    },
  };

  let basedOn = data.based_on;
  let leaving = false;
  let timer = null;
  let asked = 0;
  let removed = null;
  let dragged = null;
  const forms = new Map();
  const told = root.querySelector("[data-said]");

  const page = {
    schema: data.schema,
    words,
    may_edit: data.may_edit,
    outbounds: () => draft.outbound.map((entry) => entry.get("name")),
    changed(entry) {
      const of = KINDS.find((each) => draft[each].includes(entry));
      if (of) refreshHead(of, entry);
      status();
      clearTimeout(timer);
      timer = setTimeout(check, CHECK_MS);
    },
  };

  // --- the lists ------------------------------------------------------------------------------

  function draw(of) {
    const list = root.querySelector(`[data-list="${of}"]`);
    list.replaceChildren(...draft[of].map((entry, at) => line(of, entry, at)));
    root.querySelector(`[data-count-of="${of}"]`).textContent = draft[of].length;
  }

  function line(of, entry, at) {
    const form = forms.get(entry.id);
    const element = make(
      "li",
      { class: "cy-rule", "data-id": entry.id, "data-name": entry.get("name") },
      head(of, entry, at),
      form ? form.element : "",
    );
    return element;
  }

  function head(of, entry, at) {
    const name = entry.get("name") || words.unnamed;
    const opened = forms.has(entry.id);
    const selectors = entry.get("selector") || [];
    const nothing = of === "inbound" ? words.all_items : words.no_conditions;
    const text = make(
      "button",
      { type: "button", class: "cy-rule-text", "aria-expanded": String(opened), onclick: () => toggle(of, entry) },
      make("span", { class: "cy-rule-name" }, name),
      make("span", { class: "cy-subtle cy-small" }, entry.get("class") || "–"),
      make("code", { class: "cy-rule-selector" }, selectors[0] ?? nothing, selectors.length > 1 ? ` +${selectors.length - 1}` : ""),
      entry.get("note") ? make("span", { class: "cy-rule-note" }, entry.get("note")) : "",
    );
    const wrong = entry.wrong.filter((each) => !each.warning).length;
    const marks = make("span", { class: "cy-rule-marks" });
    if (entry.get("disable")) marks.append(make("span", { class: "cy-tag" }, words.disabled));
    if (entry.from === null || Object.keys(entry.typed).length) marks.append(make("span", { class: "cy-tag cy-tag-draft" }, words.changed));
    if (wrong) marks.append(make("span", { class: "cy-tag cy-tag-bad" }, `✗ ${wrong}`));
    const parts = [make("span", { class: "cy-place" }, at + 1), text, marks];
    if (page.may_edit) {
      parts.unshift(handle(name));
      const on = make("input", { type: "checkbox", "data-press": "enable", "aria-label": `${words.enabled}: ${name}`, title: words.enabled,
        onchange: (event) => { entry.set("disable", !event.target.checked); page.changed(entry); } });
      on.checked = !entry.get("disable");
      parts.push(
        make("span", { class: "cy-rule-buttons" },
          make("label", { class: "cy-switch", title: words.enabled }, on),
          button("up", "arrow_upward", words.up, at === 0, () => move(of, entry, at - 1, "up")),
          button("down", "arrow_downward", words.down, at === draft[of].length - 1, () => move(of, entry, at + 1, "down")),
          button("edit", "edit", words.edit, false, () => toggle(of, entry)),
          button("copy", "content_copy", words.duplicate, false, () => duplicate(of, entry)),
          button("delete", "delete", words.delete, false, () => remove(of, entry)),
        ),
      );
    }
    return make("div", { class: `cy-rule-head${entry.get("disable") ? " cy-rule-off" : ""}` }, ...parts);
  }

  function handle(name) {
    return make("span", { class: "cy-handle material-symbols-outlined", draggable: "true", title: words.drag, "aria-hidden": "true", "data-handle": name }, "drag_indicator");
  }

  function button(what, icon, text, disabled, press) {
    return make("button", { type: "button", class: "cy-icon-button", "data-press": what, title: text, "aria-label": text, disabled, onclick: press },
      make("span", { class: "material-symbols-outlined", "aria-hidden": "true" }, icon));
  }

  const lineOf = (entry) => root.querySelector(`.cy-rule[data-id="${entry.id}"]`);

  /* Only the head is drawn anew: what somebody types in stays where it is. */
  function refreshHead(of, entry) {
    const element = lineOf(entry);
    // What is being dragged must stay; it is drawn anew where it is dropped.
    if (!element || dragged) return;
    const before = element.firstElementChild;
    const focused = before.contains(document.activeElement) ? document.activeElement.dataset.press : null;
    before.replaceWith(head(of, entry, draft[of].indexOf(entry)));
    element.dataset.name = entry.get("name");
    if (focused) element.querySelector(`[data-press="${focused}"]`)?.focus();
  }

  function toggle(of, entry, open = !forms.has(entry.id)) {
    if (!open) {
      forms.get(entry.id)?.element.remove();
      forms.delete(entry.id);
    } else if (!forms.has(entry.id)) {
      const form = new Form(page, of, entry);
      forms.set(entry.id, form);
      lineOf(entry).append(form.element);
      form.show(entry.wrong);
    }
    refreshHead(of, entry);
  }

  function move(of, entry, to, pressed) {
    const entries = draft[of];
    entries.splice(entries.indexOf(entry), 1);
    entries.splice(to, 0, entry);
    draw(of);
    const element = lineOf(entry);
    const again = element.querySelector(`[data-press="${pressed}"]`);
    (again && !again.disabled ? again : element.querySelector('[data-press="edit"]'))?.focus();
    page.changed();
    announce(say(words.moved, { name: entry.get("name") || words.unnamed, place: to + 1 }));
  }

  function duplicate(of, entry) {
    const typed = structuredClone(entry.typed);
    const taken = draft[of].map((each) => each.get("name"));
    let name = `${entry.get("name")} ${words.copy}`;
    for (let n = 2; taken.includes(name); n += 1) name = `${entry.get("name")} ${words.copy} ${n}`;
    const made = new Entry(entry.from, entry.base, { ...typed, name });
    draft[of].splice(draft[of].indexOf(entry) + 1, 0, made);
    show(of, made);
  }

  function add(of) {
    const made = new Entry(null, EMPTY[of]);
    draft[of].push(made);
    show(of, made);
  }

  function show(of, made) {
    draw(of);
    toggle(of, made, true);
    lineOf(made).scrollIntoView({ block: "nearest" });
    lineOf(made).querySelector('[data-field="name"] input').focus();
    page.changed();
  }

  function remove(of, entry) {
    const at = draft[of].indexOf(entry);
    draft[of].splice(at, 1);
    removed = { of, entry, at };
    draw(of);
    page.changed();
    announce(say(words.removed, { name: entry.get("name") || words.unnamed }), undo);
  }

  function undo() {
    if (!removed) return;
    draft[removed.of].splice(removed.at, 0, removed.entry);
    draw(removed.of);
    removed = null;
    announce("");
    page.changed();
  }

  // --- dragging -------------------------------------------------------------------------------

  for (const of of data.may_edit ? KINDS : []) {
    const list = root.querySelector(`[data-list="${of}"]`);
    list.addEventListener("dragstart", (event) => {
      dragged = event.target.closest?.("[data-handle]") ? event.target.closest(".cy-rule") : null;
      if (!dragged) return;
      event.dataTransfer.effectAllowed = "move";
      event.dataTransfer.setData("text/plain", dragged.dataset.name);
      event.dataTransfer.setDragImage(dragged, 10, 10);
      dragged.classList.add("cy-dragged");
    });
    list.addEventListener("dragover", (event) => {
      if (!dragged || !list.contains(dragged)) return;
      event.preventDefault();
      const over = event.target.closest(".cy-rule");
      if (!over || over === dragged) return;
      const box = over.getBoundingClientRect();
      over[event.clientY < box.top + box.height / 2 ? "before" : "after"](dragged);
    });
    list.addEventListener("drop", (event) => dragged && event.preventDefault());
    list.addEventListener("dragend", () => {
      if (!dragged || !list.contains(dragged)) return;
      const entry = draft[of].find((each) => String(each.id) === dragged.dataset.id);
      const to = [...list.children].indexOf(dragged);
      dragged = null;
      move(of, entry, to, "edit");
    });
  }

  // --- the draft and the server -----------------------------------------------------------------

  function isChanged() {
    return (
      Object.keys(draft.rules.typed).length > 0 ||
      KINDS.some(
        (of) =>
          draft[of].length !== data.state[of].length ||
          draft[of].some((entry, at) => entry.from !== at || Object.keys(entry.typed).length > 0),
      )
    );
  }

  function sent() {
    const plain = { rules: draft.rules.typed };
    for (const of of KINDS) plain[of] = draft[of].map(({ from, typed }) => ({ from, set: typed }));
    return plain;
  }

  async function post(address, more) {
    const token = root.querySelector("[name=csrfmiddlewaretoken]").value;
    return fetch(address, {
      method: "POST",
      headers: { "Content-Type": "application/json", "X-CSRFToken": token },
      credentials: "same-origin",
      redirect: "manual",
      body: JSON.stringify({ version: data.version, draft: sent(), ...more }),
    });
  }

  async function check() {
    const number = (asked += 1);
    const entries = Object.fromEntries(KINDS.map((of) => [of, [...draft[of]]]));
    try {
      const answer = await post(root.dataset.check);
      if (number !== asked) return;
      if (!answer.ok) throw new Error(String(answer.status));
      judge((await answer.json()).wrong, entries);
    } catch {
      // The save says so, if it still is so then.
    }
  }

  /* Each problem to its entry; those of the whole set to its own form. */
  function judge(wrong, entries = draft) {
    draft.rules.wrong = wrong.filter((each) => each.of === "rules");
    wholeForm.show(draft.rules.wrong);
    for (const of of KINDS) {
      entries[of].forEach((entry, at) => {
        const found = wrong.filter((each) => each.of === of && each.place === at);
        if (same(found, entry.wrong)) return;
        entry.wrong = found;
        forms.get(entry.id)?.show(found);
        refreshHead(of, entry);
      });
    }
    status(wrong);
  }

  function announce(text, undoing) {
    if (!told) return;
    told.replaceChildren(text);
    if (undoing) told.append(" ", make("button", { type: "button", class: "cy-button cy-button-small", onclick: undoing }, words.undo));
  }

  function status(wrong = null) {
    const save = root.querySelector("[data-save-button]");
    if (!save) return;
    save.disabled = !isChanged();
    save.closest("[data-savebar]").toggleAttribute("data-idle", save.disabled);
    if (wrong === null) return;
    const errors = wrong.filter((each) => !each.warning).length;
    told.dataset.kind = errors ? "bad" : "fine";
    if (errors) announce(errors === 1 ? words.problem : say(words.problems, { count: errors }));
    else if (wrong.length) announce(wrong.length === 1 ? words.warning : say(words.warnings, { count: wrong.length }));
    else if (isChanged()) announce(words.fine);
    else announce("");
  }

  async function save() {
    clearTimeout(timer);
    asked += 1;
    const note = root.querySelector("[data-note]").value;
    let answer;
    try {
      answer = await post(root.dataset.save, { based_on: basedOn, note });
    } catch {
      return announce(words.failed);
    }
    if (answer.type === "opaqueredirect" || answer.status === 403) return announce(words.forbidden);
    if (answer.ok) {
      leaving = true;
      location.assign((await answer.json()).address);
    } else if (answer.status === 422) {
      const wrong = (await answer.json()).wrong;
      judge(wrong);
      openFirst(wrong);
    } else if (answer.status === 409) {
      meanwhile((await answer.json()).meanwhile);
    } else announce(words.failed);
  }

  function openFirst(wrong) {
    const first = wrong.find((each) => !each.warning);
    if (!first) return;
    if (first.of === "rules") root.querySelector("[data-rules]").closest("details").open = true;
    else toggle(first.of, draft[first.of][first.place], true);
    root.querySelector(".cy-has-wrong")?.scrollIntoView({ block: "center" });
  }

  /* Somebody else has saved: the draft stays, and this person decides what becomes of it. */
  function meanwhile(other) {
    told.dataset.kind = "bad";
    told.replaceChildren(
      make("strong", {}, say(words.meanwhile, other)),
      " ",
      make("a", { class: "cy-button cy-button-small", href: other.address, target: "_blank", rel: "noopener" }, say(words.see_theirs, other)),
      " ",
      make("button", {
        type: "button",
        class: "cy-button cy-button-small",
        onclick: () => {
          basedOn = other.number;
          save();
        },
      }, say(words.save_mine, other)),
    );
  }

  // --- begin ------------------------------------------------------------------------------------

  draft.rules.id = 0;
  const wholeForm = new Form(page, "rules", draft.rules);
  root.querySelector("[data-rules]").append(wholeForm.element);
  for (const of of KINDS) draw(of);
  for (const each of root.querySelectorAll("[data-add]")) {
    each.addEventListener("click", () => add(each.dataset.add));
  }
  root.querySelector("[data-savebar]")?.addEventListener("submit", (event) => {
    event.preventDefault();
    save();
  });
  window.addEventListener("beforeunload", (event) => {
    if (data.may_edit && !leaving && isChanged()) event.preventDefault();
  });
  status();
})();

/* The form of one inbound, outbound or of the whole set, drawn from the schema that the server
   gives: every field is a text, a tick or a list of them, and the server alone reads them. */
(function () {
  "use strict";

  function make(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else if (value === true) element.setAttribute(name, "");
      else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
    }
    element.append(...children);
    return element;
  }

  /* One form. `entry` has get(name) and set(name, value); `page` has schema, words, may_edit,
     outbounds() and changed(). */
  class Form {
    constructor(page, of, entry) {
      this.page = page;
      this.of = of;
      this.entry = entry;
      this.element = make("div", { class: "cy-rule-form" });
      this.draw();
    }

    draw() {
      const open = new Set(
        [...this.element.querySelectorAll("details[open]")].map((each) => each.dataset.group),
      );
      this.element.replaceChildren(
        ...this.page.schema.groups[this.of].map((group, number) => {
          const fields = group.fields.map((field) =>
            field.kind === "parameters" ? this.parameters() : this.field(field, field.name),
          );
          if (this.of === "rules") return make("div", { class: "cy-group" }, ...fields);
          const isOpen = group.open || open.has(String(number)) || this.holds(group);
          return make(
            "details",
            { class: "cy-group", open: isOpen, "data-group": number },
            make("summary", { class: "cy-group-title" }, group.title),
            make("div", { class: "cy-group-fields" }, ...fields),
          );
        }),
      );
      this.show(this.wrong || []);
    }

    /* Whether somebody has typed into a group that begins folded. */
    holds(group) {
      return group.fields.some((field) => this.entry.isTyped(field.name));
    }

    parameters() {
      const known = this.page.schema.classes[this.of][this.entry.get("class")];
      const found = known ? [...known] : [];
      const names = new Set(found.map((field) => field.name));
      if (!this.entry.isTyped("class") || !known) {
        for (const name of this.entry.names("init.")) {
          const bare = name.slice("init.".length);
          if (!names.has(bare)) found.push({ name: bare, kind: "text", label: bare, help: "" });
        }
      }
      if (!known && !found.length) return make("p", { class: "cy-subtle" }, this.page.words.no_class);
      return make(
        "div",
        { class: "cy-parameters" },
        ...found.map((field) => this.field(field, `init.${field.name}`)),
      );
    }

    field(field, name) {
      const id = `f-${this.of}-${this.entry.id}-${name}`;
      const control = this.control(field, name, id);
      const label = make("label", { class: "cy-stat-name", for: id }, field.label);
      if (field.required) label.append(make("span", { class: "cy-needed", "aria-hidden": "true" }, " *"));
      const help = field.help ? make("span", { class: "cy-subtle cy-small", id: `${id}-help` }, field.help) : "";
      if (help && control.setAttribute) control.setAttribute("aria-describedby", `${id}-help`);
      const parts =
        field.kind === "truth"
          ? [make("span", { class: "cy-tick-line" }, control, label), help]
          : [label, control, help];
      return make(
        "div",
        { class: `cy-field cy-kind-${field.kind}`, "data-field": name },
        ...parts,
        make("div", { class: "cy-wrong", "data-wrong": name }),
      );
    }

    control(field, name, id) {
      const off = !this.page.may_edit;
      const value = this.entry.get(name);
      const typed = (event) => this.type(name, event.target.value);
      const box = (extra = {}) => ({ class: "cy-input cy-wide-input", id, disabled: off, spellcheck: "false", ...extra });
      const area = (rows, value_) => {
        const element = make("textarea", box({ rows, oninput: typed }));
        element.value = value_;
        return element;
      };
      const choice = (pairs) => {
        const element = make("select", box({ onchange: typed }));
        for (const [word, text] of pairs) {
          element.append(make("option", { value: word, selected: word === (value ?? "") }, text));
        }
        return element;
      };
      switch (field.kind) {
        case "truth": {
          const tick = make("input", { type: "checkbox", id, disabled: off, onchange: (event) => this.type(name, event.target.checked) });
          tick.checked = value === true;
          return tick;
        }
        case "maybe": {
          const words = this.page.words;
          const pairs = [["", words.by_class], ["true", words.true], ["false", words.false]];
          if (value && !["true", "false"].includes(value)) pairs.push([value, value]);
          return choice(pairs);
        }
        case "choice":
          return choice(field.choices);
        case "outbound": {
          const names = this.page.outbounds().filter((each) => each && each !== this.entry.get("name"));
          if (value && !names.includes(value)) names.push(value);
          return choice([["", this.page.words.none], ...names.map((each) => [each, each])]);
        }
        case "class": {
          const names = Object.keys(this.page.schema.classes[this.of]);
          if (value && !names.includes(value)) names.push(value);
          const element = choice([["", "–"], ...names.map((each) => [each, each])]);
          element.addEventListener("change", () => this.draw());
          return element;
        }
        case "selectors":
          return this.rows(name, id, value || [], this.page.words.add_selector, (row, at) => this.selector(name, id, row, at));
        case "converts":
          return this.rows(name, id, value || [], this.page.words.add_convert, (row, at) => this.convert(name, id, row, at), () => ({ class: "", init: "" }));
        case "long":
          return area(2, value ?? "");
        case "lines":
        case "mapping": {
          const text = value ?? "";
          return area(Math.min(14, Math.max(2, text.split("\n").length + 1)), text);
        }
        default: {
          const element = make("input", box({ oninput: typed, inputmode: field.kind === "number" ? "decimal" : false }));
          element.value = value ?? "";
          return element;
        }
      }
    }

    /* A list of rows, each with a button that deletes it. */
    rows(name, id, values, addText, draw, empty = () => "") {
      const list = make("div", { class: "cy-rows", id, role: "group" });
      values.forEach((value, at) => {
        const row = make("div", { class: "cy-row-line", "data-row": at }, make("div", { class: "cy-row-body" }, draw(value, at)));
        if (this.page.may_edit) {
          row.append(
            this.small("arrow_upward", this.page.words.up, at === 0, () => this.swap(name, at, at - 1)),
            this.small("delete", this.page.words.delete, false, () => this.change(name, (rows) => rows.splice(at, 1))),
          );
        }
        row.append(make("div", { class: "cy-wrong", "data-wrong-row": `${name}.${at}` }));
        list.append(row);
      });
      if (this.page.may_edit) {
        const add = () => {
          this.change(name, (rows) => rows.push(empty()));
          this.element.querySelector(`[data-field="${name}"] [data-row="${values.length}"] :is(input,textarea,select)`)?.focus();
        };
        list.append(make("button", { type: "button", class: "cy-button cy-button-small", onclick: add }, addText));
      }
      return list;
    }

    small(icon, text, disabled, press) {
      return make(
        "button",
        { type: "button", class: "cy-icon-button", title: text, "aria-label": text, disabled, onclick: press },
        make("span", { class: "material-symbols-outlined", "aria-hidden": "true" }, icon),
      );
    }

    selector(name, id, value, at) {
      const element = make("textarea", {
        class: "cy-input cy-wide-input cy-code-input",
        rows: Math.max(1, Math.ceil(value.length / 90)),
        spellcheck: "false",
        disabled: !this.page.may_edit,
        "aria-label": `${this.page.words.condition} ${at + 1}`,
        oninput: (event) => this.type(name, this.replaced(name, at, event.target.value)),
      });
      element.value = value;
      return element;
    }

    convert(name, id, value, at) {
      const names = Object.keys(this.page.schema.converters);
      if (value.class && !names.includes(value.class)) names.push(value.class);
      const off = !this.page.may_edit;
      const change = (part) => this.type(name, this.replaced(name, at, { ...this.entry.get(name)[at], ...part }));
      const select = make("select", {
        class: "cy-input cy-wide-input",
        disabled: off,
        "aria-label": `${this.page.words.class_of_convert} ${at + 1}`,
        onchange: (event) => {
          change({ class: event.target.value });
          this.draw();
        },
      });
      for (const each of ["", ...names]) {
        select.append(make("option", { value: each, selected: each === value.class }, each || "–"));
      }
      const known = this.page.schema.converters[value.class];
      if (known && known.length === 0 && !value.init) return select;
      const text = known ? this.page.words.parameters.replace("%(names)s", known.join(", ")) : "";
      const area = make("textarea", {
        class: "cy-input cy-wide-input cy-code-input",
        rows: Math.max(1, value.init.split("\n").length),
        placeholder: known && known.length ? `${known[0]}: …` : "",
        spellcheck: "false",
        disabled: off,
        "aria-label": text,
        oninput: (event) => change({ init: event.target.value }),
      });
      area.value = value.init;
      return make("div", { class: "cy-convert" }, select, area, make("span", { class: "cy-subtle cy-small" }, text));
    }

    replaced(name, at, value) {
      const rows = [...this.entry.get(name)];
      rows[at] = value;
      return rows;
    }

    swap(name, one, other) {
      this.change(name, (rows) => ([rows[one], rows[other]] = [rows[other], rows[one]]));
    }

    change(name, work) {
      const rows = [...(this.entry.get(name) || [])];
      work(rows);
      this.type(name, rows);
      this.draw();
    }

    type(name, value) {
      this.entry.set(name, value);
      this.page.changed(this.entry);
    }

    /* What is wrong with this entry, each at its field; the rest at the class. */
    show(wrong) {
      this.wrong = wrong;
      for (const place of this.element.querySelectorAll(".cy-wrong")) place.replaceChildren();
      for (const field of this.element.querySelectorAll(".cy-field")) field.classList.remove("cy-has-wrong");
      for (const each of wrong) {
        const place =
          (each.row !== null && this.element.querySelector(`[data-wrong-row="${CSS.escape(`${each.field}.${each.row}`)}"]`)) ||
          this.element.querySelector(`[data-wrong="${CSS.escape(each.field)}"]`) ||
          this.element.querySelector('[data-wrong="class"]') ||
          this.element.querySelector("[data-wrong]");
        if (!place) continue;
        const kind = each.warning ? "cy-warning-text" : "cy-danger-text";
        const said = make("p", { class: kind, role: "alert" }, each.text);
        if (each.offset !== null && each.field === "selector") said.append(" ", this.marked(each));
        place.append(said);
        place.closest(".cy-field")?.classList.add("cy-has-wrong");
        place.closest("details")?.setAttribute("open", "");
      }
    }

    /* The condition with the character that is wrong. */
    marked(each) {
      const characters = [...(this.entry.get("selector")[each.row] || "")];
      const at = Math.min(each.offset, characters.length);
      const from = Math.max(0, at - 24);
      const where = this.page.words.character.replace("%(number)s", each.offset + 1);
      return make(
        "span",
        { class: "cy-marked" },
        `(${where}) `,
        make(
          "code",
          {},
          (from ? "…" : "") + characters.slice(from, at).join(""),
          make("mark", {}, characters[at] ?? "␣"),
          characters.slice(at + 1, at + 25).join(""),
        ),
      );
    }
  }

  window.CrawlyardRules = { Form, make };
})();

// The query: its images, the number of results, the filters.

import * as actions from "./actions.js";
import * as api from "./api.js";
import * as crop from "./crop.js";
import { button, cut, h, icon, number } from "./dom.js";
import * as saved from "./saved.js";
import * as session from "./session.js";
import * as state from "./state.js";

const touched = matchMedia("(hover: none)");
const COUNTS = [5, 10, 20, 50, 100, 200, 500, 1000];

export function make() {
  const { gallery } = session;
  const tiles = h("div", { class: "query", role: "group", "aria-label": "Query" });
  const picker = h("input", { type: "file", accept: "image/*", multiple: true, hidden: true, onchange: () => (actions.upload(picker.files, picker.dataset.together === "yes"), (picker.value = "")) });
  const pick = (together) => {
    picker.dataset.together = together ? "yes" : "no";
    picker.click();
  };

  const most = gallery.limits?.k ?? 1000;
  const counts = [...new Set([...COUNTS.filter((k) => k <= most), state.get().k])].sort((a, b) => a - b);
  const k = h("select", { "aria-label": "Number of results", onchange: () => state.set({ k: Number(k.value) }) }, counts.map((value) => h("option", { value: String(value) }, `${value} results`)));

  const chips = h("div", { class: "chips" });
  const filter = gallery.labelled ? labelFilter() : null;
  const where = gallery.columns?.length ? whereField(gallery.columns) : null;
  const group = groupChoice(gallery);
  const words = gallery.text ? textField() : null;
  const element = h("div", { class: "querybar" }, tiles, picker, h("div", { class: "choices" }, words, k, filter, where, group, chips));

  function one(source, name, remove, region, cut) {
    const label = `Remove ${name} from the query`;
    const whole = () => (typeof source === "string" ? h("img", { src: source, alt: name, title: name, draggable: false }) : source);
    const image = region ? crop.picture(source, region, `${name}, a part`) : whole();
    const words = `Choose a part of ${name}`;
    const part = cut && h("button", { type: "button", class: "part", title: `${words} (c)`, "aria-label": words, "aria-pressed": String(Boolean(region)), onclick: cut }, icon("crop"));
    return h("span", { class: "one-query" }, image, part, h("button", { type: "button", title: label, "aria-label": label, onclick: remove }, icon("cross")));
  }

  function drawTiles(s) {
    const list = [
      ...(s.text ? [one(h("span", { class: "picture words" }, h("span", {}, s.text)), `“${s.text}”`, () => actions.searchText(""))] : []),
      ...session.files.map((file) => one(file.url, file.name, () => actions.removeFile(file), file.region, () => actions.cropFile(file))),
      ...s.ids.map((id) => {
        const known = session.ranking.results && session.ranking.query?.ids.includes(id) && s.ids.length === 1 ? session.ranking.query : null;
        const region = session.anyPictures() ? session.regionOf(s, id) : null;
        const item = { id, label: known?.label };
        const shown = session.anyPictures() ? api.thumbnail(id, region ? 320 : 160) : h("span", { class: "picture words" }, h("span", {}, `#${id}`));
        return one(shown, known?.label ?? `item ${id}`, () => actions.remove(id), region, actions.canCrop(item) && (() => actions.cropItem(item)));
      }),
    ];
    // A link does not contain an uploaded image.
    if (s.upload && !session.files.length) list.unshift(h("span", { class: "gone" }, `${s.upload} is not in the link`, h("button", { type: "button", title: "Continue without it", "aria-label": `Continue without ${s.upload}`, onclick: () => state.set({ upload: "" }) }, icon("cross"))));
    const free = (gallery.limits?.queries ?? 3) - list.length;
    const full = list.length > 0;
    const add = gallery.upload && free > 0 ? h("button", { type: "button", class: full ? "pick small" : "pick", title: full ? "Add an image to the query" : null, "aria-label": full ? "Add an image to the query" : null, onclick: () => pick(full) }, icon(full ? "plus" : "image"), full ? null : h("span", {}, touched.matches ? "Pick an image" : "Drop, paste or pick an image")) : null;
    const start = !full && !add ? h("span", { class: "soft" }, gallery.images ? "Click an image to search with it" : "Click an item to search with it") : null;
    const clear = list.length > 1 ? button("Clear", actions.clear, { class: "quiet" }) : null;
    tiles.replaceChildren(...[...list, add, start, clear].filter(Boolean));
  }

  function drawChips(s) {
    const chip = (name, value, words, kind = "") =>
      h("span", { class: `chip ${kind}` }, cut(words), button("×", () => state.set({ [name]: state.get()[name].filter((v) => v !== value) }), { "aria-label": `Remove the filter ${words}` }));
    const of = (value) => {
      const [kind, name] = saved.split(value);
      const words = `${saved.KINDS[kind] ?? "list"} ${name}`;
      return h("span", { class: "chip saved-chip" }, cut(words), button("×", () => state.set({ saved: "" }), { "aria-label": `Remove the filter ${words}` }));
    };
    chips.replaceChildren(...s.label.map((v) => chip("label", v, v)), ...s.not_label.map((v) => chip("not_label", v, `not ${v}`, "not")), ...s.camera.map((v) => chip("camera", v, `camera ${v}`)), ...(s.saved ? [of(s.saved)] : []));
  }

  session.onRanking(() => drawTiles(state.get()));
  return {
    element,
    crop: () => element.querySelector(".part")?.click(),
    focus: () => element.querySelector("input[role=combobox]")?.focus(),
    show(s) {
      if (![...k.options].some((option) => option.value === String(s.k))) k.append(h("option", { value: String(s.k) }, `${s.k} results`));
      k.value = String(s.k);
      if (where && document.activeElement !== where.firstChild) where.firstChild.value = s.where;
      if (group) group.value = s.group;
      if (words && document.activeElement !== words.firstChild) words.firstChild.value = s.text;
      drawTiles(s);
      drawChips(s);
    },
  };
}

// One result for all items with the same value of a column. Tags have several values.
function groupChoice({ columns }) {
  const single = (columns ?? []).filter(({ kind }) => kind !== "tags").map(({ name }) => name);
  if (!single.length) return null;
  const select = h("select", { "aria-label": "One result for each", onchange: () => state.set({ group: select.value }) }, h("option", { value: "" }, "every item"), ["label", ...single].map((name) => h("option", { value: name }, `one per ${name}`)));
  return select;
}

// Words to search with; Enter searches, and an empty field removes them.
function textField() {
  const input = h("input", { type: "search", "aria-label": "Search by words", placeholder: "Search by words", maxlength: "1000", autocomplete: "off" });
  input.addEventListener("change", () => actions.searchText(input.value));
  return h("div", { class: "filter text-query" }, input);
}

// A condition on the columns of the items; Enter applies it, and an empty one removes it.
function whereField(columns) {
  const example = columns.find(({ kind }) => kind === "number");
  const input = h("input", { type: "text", "aria-label": "Condition", placeholder: example ? `${example.name} < 20` : `${columns[0].name} is not missing`, title: `Condition; the columns are ${columns.map(({ name, kind }) => `${name} (${kind})`).join(", ")}`, autocomplete: "off", spellcheck: false });
  input.addEventListener("change", () => state.set({ where: input.value.trim() }));
  return h("div", { class: "filter where" }, input);
}

// The number of labels in the list, and the most labels that one choice adds.
const OFFERED = 1000;
const TOGETHER = 100;

// A combobox of the labels that contain the typed text. Enter includes a label, Shift+Enter excludes it. The first row
// selects all of them.
function labelFilter() {
  const list = h("ul", { role: "listbox", id: "labels", hidden: true, "aria-label": "Labels" });
  const input = h("input", { type: "text", role: "combobox", "aria-expanded": "false", "aria-controls": "labels", "aria-autocomplete": "list", "aria-label": "Filter by label", placeholder: "Filter by label", autocomplete: "off", spellcheck: false });
  let options = [];
  let active = -1;
  let abort = new AbortController();

  const keep = (name, labels) => {
    const other = name === "label" ? "not_label" : "label";
    const s = state.get();
    state.set({ [name]: [...new Set([...s[name], ...labels])], [other]: s[other].filter((v) => !labels.includes(v)) });
    input.value = "";
    shut();
  };

  function shut() {
    list.hidden = true;
    active = -1;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  }

  function point(to) {
    active = options.length ? (to + options.length) % options.length : -1;
    [...list.children].forEach((row, i) => row.setAttribute("aria-selected", String(i === active)));
    if (active >= 0) {
      list.children[active].scrollIntoView({ block: "nearest" });
      input.setAttribute("aria-activedescendant", `label-${active}`);
    }
  }

  async function look() {
    abort.abort();
    abort = new AbortController();
    try {
      const typed = input.value.trim();
      const { total, labels } = await api.labels(typed, OFFERED, abort.signal);
      // Enter selects the typed label if it exists, else the first of the list.
      const exact = labels.findIndex(({ label }) => label.toLowerCase() === typed.toLowerCase());
      options = labels.map(({ label, count }) => ({ labels: [label], text: label, count }));
      const together = typed && total > 1 && total <= Math.min(TOGETHER, labels.length);
      if (together) options.unshift({ labels: labels.map(({ label }) => label), text: `all ${number(total)} labels that contain “${typed}”`, count: labels.reduce((sum, { count }) => sum + count, 0), all: true });
      const rows = options.map(({ labels, text, count, all }, i) =>
        h("li", { role: "option", id: `label-${i}`, "aria-selected": "false", class: all ? "all" : null }, (all ? h("span", { class: "label", onclick: () => keep("label", labels) }, text) : cut(text, { class: "label", onclick: () => keep("label", labels) })), h("span", { class: "soft" }, number(count)), button("not", () => keep("not_label", labels), { tabIndex: -1, class: "quiet", title: `Exclude ${text}` })),
      );
      if (!labels.length) rows.push(h("li", { class: "soft" }, "no label contains this"));
      else if (total > labels.length) rows.push(h("li", { class: "soft" }, `and ${number(total - labels.length)} more: type more characters`));
      list.replaceChildren(...rows);
      list.hidden = false;
      input.setAttribute("aria-expanded", "true");
      point(typed ? Math.max(0, exact) + (together ? 1 : 0) : -1);
    } catch (error) {
      if (error.name !== "AbortError") list.replaceChildren(h("li", { class: "soft" }, error.message));
    }
  }

  // Enter applies to the typed text, even if its list has not arrived yet.
  let looking = null;
  const choose = async (name) => {
    await looking;
    if (active >= 0) keep(name, options[active].labels);
  };
  input.addEventListener("input", () => (looking = look()));
  input.addEventListener("focus", () => (looking = look()));
  input.addEventListener("blur", () => setTimeout(shut, 150));
  list.addEventListener("pointerdown", (event) => event.preventDefault());
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown") point(active + 1);
    else if (event.key === "ArrowUp") point(active - 1);
    else if (event.key === "Enter") choose(event.shiftKey ? "not_label" : "label");
    else if (event.key === "Escape") list.hidden ? input.blur() : shut();
    else if (event.key === "Backspace" && !input.value) state.set({ label: state.get().label.slice(0, -1) });
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  return h("div", { class: "filter" }, input, list);
}

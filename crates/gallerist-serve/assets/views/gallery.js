import * as api from "../api.js";
import { button, h, number, notice, plural, replace, short } from "../dom.js";
import { Grid } from "../grid.js";
import * as saved from "../saved.js";
import * as session from "../session.js";
import * as state from "../state.js";
import * as tile from "../tile.js";

const FILTERS = ["label", "not_label", "camera", "where", "saved"];

// The set that is shown: the gallery, or the set of queries if there is one.
const SETS = [["", "Gallery"], ["query", "Queries"]];

// The order of the gallery: that of its file, or that of a column.
function sortChoice() {
  const columns = session.gallery.columns ?? [];
  if (!columns.length) return null;
  const choices = columns.flatMap(({ name }) => [[name, `${name}, ascending`], [`-${name}`, `${name}, descending`]]);
  const select = h("select", { "aria-label": "Sort by", onchange: () => state.set({ order: select.value }) }, [["", "Order of the file"], ...choices].map(([value, text]) => h("option", { value }, text)));
  return select;
}

export function make() {
  const facts = h("p", { class: "facts" });
  const sets = h("span", {});
  const rule = h("p", { class: "rule" });
  const sorting = sortChoice();
  const grid = new Grid("Gallery", { render: (item) => tile.tile(item), update: (cell, item) => tile.update(cell, item), enter: tile.enter, key: tile.key, empty: () => notice("No image passes the filter", "Remove a filter above.") });
  const element = h("section", { class: "view", "aria-label": "Gallery" }, h("div", { class: "bar" }, sets, facts, rule, sorting), grid.element);

  let shown = null;
  async function load(s) {
    const { gallery } = session;
    const set = gallery.queries ? s.set : "";
    if (gallery.queries) replace(sets, h("span", { class: "switch", role: "group", "aria-label": "Shown" }, SETS.map(([value, text]) => button(text, () => state.set({ set: value }), { "aria-pressed": String(value === set) }))));
    rule.textContent = gallery.protocol?.rule ?? "";
    await grid.show({ load: (offset, limit, signal) => api.items({ ...s, set }, offset, limit, signal) });
    const filtered = FILTERS.some((name) => s[name].length);
    const what = set === "query" ? ["query", "queries"] : gallery.images ? ["image"] : ["item"];
    const count = set === "query" ? gallery.queries.count : gallery.count;
    const of = filtered ? `${number(grid.total)} of ${plural(count, ...what)}` : plural(count, ...what);
    facts.textContent = [of, gallery.labelled && !filtered ? plural(gallery.label_count, "label") : null, `${gallery.dimensions} dimensions`, short(gallery.run)].filter(Boolean).join(" · ");
  }

  return {
    element,
    grid,
    show(s) {
      if (sorting) sorting.value = s.order;
      const wanted = JSON.stringify([s.set, s.order, s.saved && saved.version, ...FILTERS.map((name) => s[name])]);
      if (wanted === shown) return grid.refresh();
      shown = wanted;
      load(s);
    },
  };
}

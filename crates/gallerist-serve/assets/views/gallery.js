import * as api from "../api.js";
import { h, number, notice, plural, short } from "../dom.js";
import { Grid } from "../grid.js";
import * as session from "../session.js";
import * as tile from "../tile.js";

const FILTERS = ["label", "not_label", "camera"];

export function make() {
  const facts = h("p", { class: "facts" });
  const grid = new Grid("Gallery", { render: (item) => tile.tile(item), update: (cell, item) => tile.update(cell, item), enter: tile.enter, key: tile.key, empty: () => notice("No image passes the filter", "Remove a label above.") });
  const element = h("section", { class: "view", "aria-label": "Gallery" }, h("div", { class: "bar" }, facts), grid.element);

  let shown = null;
  async function load(s) {
    await grid.show({ load: (offset, limit, signal) => api.items(s, offset, limit, signal) });
    const { gallery } = session;
    const filtered = FILTERS.some((name) => s[name].length);
    const what = gallery.images ? "image" : "item";
    const of = filtered ? `${number(grid.total)} of ${plural(gallery.count, what)}` : plural(gallery.count, what);
    facts.textContent = [of, gallery.labelled && !filtered ? plural(gallery.label_count, "label") : null, `${gallery.dimensions} dimensions`, short(gallery.run)].filter(Boolean).join(" · ");
  }

  return {
    element,
    grid,
    show(s) {
      const wanted = JSON.stringify(FILTERS.map((name) => s[name]));
      if (wanted === shown) return grid.refresh();
      shown = wanted;
      load(s);
    },
  };
}

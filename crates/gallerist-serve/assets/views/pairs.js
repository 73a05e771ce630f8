// Near-duplicates in the gallery, and items of the gallery that are also training images.

import * as actions from "../actions.js";
import * as api from "../api.js";
import { button, cut, fraction, h, notice, plural } from "../dom.js";
import { Grid } from "../grid.js";
import * as session from "../session.js";
import * as tile from "../tile.js";

const KINDS = {
  duplicates: { title: "Near-duplicates", pair: "pair", none: "No two items are this close" },
  leaks: { title: "Leaks from training", pair: "item near a training image", pairs: "items near training images", none: "No item of the gallery is this close to a training image" },
};

const REASONS = {
  computing: "The server is comparing the images.",
  none: "There are too many images for the server to compare them automatically.",
};

export function make(name) {
  const kind = KINDS[name];
  const facts = h("span", { class: "facts" });
  // Empty until the server has sent the default distance of this gallery.
  const limit = h("input", { type: "number", min: "0", step: "any", value: "", inputmode: "decimal", onchange: () => load() });
  let furthest = 2;
  let state = "computing";
  const side = (item, run) => {
    const shown = tile.picture(item);
    shown.addEventListener("click", run);
    return h("div", { class: "half" }, shown, cut(item.label ?? "", { class: "label" }), cut(item.path ?? tile.nameOf(item), { class: "soft" }));
  };
  const grid = new Grid(kind.title, {
    minimum: 260,
    fewest: 1,
    height: (width) => (width - 6) / 2 + 46,
    render(pair) {
      const differ = pair.a.label !== null && pair.b.label !== null && pair.a.label !== pair.b.label;
      const words = [h("b", {}, fraction(pair.distance)), differ && name === "duplicates" && h("span", { class: "warn" }, "labels differ")];
      return h("div", { class: "double" }, side(pair.a, () => actions.search(pair.a)), side(pair.b, () => actions.search(pair.b)), h("div", { class: "between" }, words));
    },
    update(cell, pair) {
      tile.update(cell, pair.a);
      cell.setAttribute("aria-label", `${tile.describe(pair.a)} and ${tile.describe(pair.b)}, distance ${fraction(pair.distance)}`);
    },
    enter: (pair, event) => tile.enter(pair.a, event),
    key: (event, pair) => tile.key(event, pair.a),
    empty: () => (state === "ready" ? notice(kind.none, null, button("Show the closest", () => ((limit.value = String(furthest)), load()))) : notice("There is nothing to show here", REASONS[state])),
  });
  const element = h("section", { class: "view", "aria-label": kind.title }, h("div", { class: "bar" }, facts, h("label", { class: "field" }, "closer than", limit)), grid.element);

  async function load() {
    await grid.show({
      async load(offset, count, signal) {
        const answer = await api.pairs(name, limit.value, offset, count, signal);
        state = answer.state;
        if (limit.value === "" && answer.state === "ready") limit.value = String(Number(answer.distance.toPrecision(3)));
        // Rounded up, so that the pair with the largest distance is included.
        furthest = Number((answer.furthest * 1.001).toPrecision(4));
        const total = answer.total ?? offset + answer.pairs.length + (answer.pairs.length === count ? 1 : 0);
        return { items: answer.pairs, total };
      },
    });
    facts.textContent = plural(grid.total, kind.pair, kind.pairs);
  }

  let read = null;
  return {
    element,
    grid,
    show() {
      if (read === session.gallery.failures) return grid.refresh();
      read = session.gallery.failures;
      load();
    },
  };
}

// Queries by average precision, the worst first; with two models, by the difference. Each query is a row; Enter or a click
// searches with it.

import * as actions from "../actions.js";
import * as api from "../api.js";
import { button, change, cut, fraction, h, notice, number, plural, replace } from "../dom.js";
import { Grid } from "../grid.js";
import * as selection from "../selection.js";
import * as session from "../session.js";
import * as state from "../state.js";
import * as tile from "../tile.js";

const meter = (value) => {
  const fill = h("i");
  fill.style.width = `${Math.max(0, Math.min(1, value)) * 100}%`;
  return h("span", { class: "meter", "aria-hidden": "true" }, fill);
};

function failureRow(row) {
  const { item, nearest } = row;
  const found = row.first_match_rank ? `first right at rank ${number(row.first_match_rank)} of ${plural(row.matches, "match", "matches")}` : "has no match in the gallery";
  const near = nearest && [tile.picture(nearest), h("span", { class: "who" }, h("span", { class: "soft" }, "nearest"), nearest.label === item.label ? h("span", {}, "same label") : cut(nearest.label ?? `#${nearest.id}`), h("span", { class: "soft" }, fraction(nearest.distance)))];
  if (typeof nearest?.right === "boolean") near[0].append(tile.verdict(nearest.right));
  return [tile.picture(item), h("span", { class: "who" }, cut(item.label ?? tile.nameOf(item), { class: "label", title: tile.describe(item) }), h("span", { class: "soft" }, found)), h("span", { class: "amount" }, h("b", {}, fraction(row.average_precision)), meter(row.average_precision)), h("span", { class: "near" }, near)];
}

function changeRow(row) {
  const { item } = row;
  return [
    tile.picture(item),
    h("span", { class: "who" }, cut(item.label ?? tile.nameOf(item), { class: "label", title: tile.describe(item) }), h("span", { class: "soft" }, `average precision ${fraction(row.average_precision)}, with ${session.gallery.compare} ${fraction(row.other_average_precision)}`)),
    h("span", { class: `amount ${row.change > 0 ? "gained" : row.change < 0 ? "lost" : ""}` }, h("b", {}, change(row.change))),
    h("span", { class: "near meters" }, meter(row.average_precision), meter(row.other_average_precision)),
  ];
}

const KINDS = {
  failures: {
    title: "Queries by average precision",
    sorts: [["ap", "Worst first"], ["-ap", "Best first"], ["wrong", "Wrong first"], ["file", "Order of the file"]],
    steps: true,
    ask: (sort, offset, limit, signal) => api.failures(sort, offset, limit, signal),
    row: failureRow,
    facts: (answer) => [`${plural(answer.total, "query", "queries")}, mean average precision ${fraction(answer.mean_average_precision, 4)}`, ...(session.gallery.queries ? answer.metrics : []).filter(({ name }) => name !== "map").map(({ name, value }) => `${name} ${fraction(value, 4)}`)].join(" · "),
  },
  compare: {
    title: "Queries of two models",
    sorts: [["gained", "Gained most"], ["lost", "Lost most"]],
    ask: (sort, offset, limit, signal) => api.compare(sort, offset, limit, signal),
    row: changeRow,
    facts: (answer) => `${answer.own} ${fraction(answer.mean_average_precision, 4)} mAP, ${answer.other} ${fraction(answer.other_mean_average_precision, 4)}: ${plural(answer.gained, "query gains", "queries gain")}, ${number(answer.lost)} lose, ${number(answer.same)} stay`,
    model: "both",
  },
};

export function make(name) {
  const kind = KINDS[name];
  const facts = h("span", { class: "facts" });
  const rule = h("span", { class: "rule" });
  const tools = h("span", { class: "switch", role: "group", "aria-label": "Order" });
  const only = h("span", {});
  const sortOf = (s) => (kind.sorts.some(([value]) => value === s.sort) ? s.sort : kind.sorts[0][0]);
  const run = (row) => {
    if (kind.model) state.set({ model: kind.model }, { quiet: true });
    // The ranked list steps through the queries in this order.
    if (kind.steps) state.set({ step: sortOf(state.get()) }, { quiet: true });
    actions.search(row.item);
  };
  const grid = new Grid(kind.title, {
    list: true,
    height: () => 64,
    render: (row) => h("div", { class: "line", onclick: () => run(row), onpointerenter: () => tile.hover(row.item.id), onpointerleave: () => tile.hover(null) }, kind.row(row)),
    update(cell, row) {
      tile.update(cell, row.item);
      cell.setAttribute("aria-label", `${tile.describe(row.item)}, ${name === "compare" ? `change ${change(row.change)}` : `average precision ${fraction(row.average_precision)}`}`);
    },
    enter: run,
    key: (event, row) => tile.key(event, row.item),
    empty: () => notice(selection.exists(state.get()) ? "No query is in the selection" : "No queries"),
  });
  const element = h("section", { class: "view", "aria-label": kind.title }, h("div", { class: "bar" }, facts, tools, only, rule), grid.element);

  // The pages of the server, filtered by the selection: pages are loaded until there are enough rows.
  function source(sort, s) {
    const chosen = (row) => selection.has(s, row.item);
    const size = selection.exists(s) ? 500 : 0;
    const found = [];
    let next = 0;
    let total = Infinity;
    return {
      async load(offset, limit, signal) {
        if (!size) {
          const answer = await kind.ask(sort, offset, limit, signal);
          facts.textContent = kind.facts(answer);
          return { items: answer.queries, total: answer.total };
        }
        while (found.length < offset + limit && next < total) {
          const answer = await kind.ask(sort, next, size, signal);
          facts.textContent = kind.facts(answer);
          total = answer.total;
          next += size;
          found.push(...answer.queries.filter(chosen));
        }
        return { items: found.slice(offset, offset + limit), total: found.length + (next < total ? 1 : 0) };
      },
    };
  }

  let shown = "";
  async function load(s) {
    const sort = sortOf(s);
    const wanted = JSON.stringify([sort, s.sel, s.class, s.lasso, session.gallery.failures]);
    if (wanted === shown) return grid.refresh();
    shown = wanted;
    rule.textContent = session.gallery.protocol?.rule ?? (kind.model ? "mAP: mean average precision; every item is a query against all the others." : "");
    replace(tools, kind.sorts.map(([value, text]) => button(text, () => state.set({ sort: value }), { "aria-pressed": String(value === sort) })));
    only.replaceChildren(...(selection.exists(s) ? [h("span", { class: "chip" }, "only the selection", button("×", selection.clear, { "aria-label": "Show all queries" }))] : []));
    if (s.lasso) await session.readPoints().catch(() => null);
    grid.show(source(sort, s));
  }

  return { element, grid, show: load };
}

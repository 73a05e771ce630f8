// The ranked list of the query; if two models are compared, their lists are next to each other.

import * as csv from "../csv.js";
import { announce, button, byKeyboard, cut, fraction, h, icon, milliseconds, notice, number, plural, replace, short } from "../dom.js";
import { Grid, listed } from "../grid.js";
import * as histogram from "../histogram.js";
import * as marks from "../marks.js";
import * as session from "../session.js";
import * as state from "../state.js";
import * as steps from "../steps.js";
import * as tile from "../tile.js";

export function make() {
  const bar = h("div", { class: "bar" });
  const lists = h("div", { class: "lists" });
  const distances = histogram.make();
  const queries = steps.make();
  const element = h("section", { class: "view", "aria-label": "Ranked list" }, queries.element, bar, distances.element, lists);
  let shown = null;
  let grids = [];

  function summary({ results, matches, took, elapsed, query }) {
    const verdicts = results.map((result) => marks.verdict(query, result)).filter((verdict) => typeof verdict === "boolean");
    const right = verdicts.filter(Boolean).length;
    const parts = [h("b", {}, `${results.length} nearest`)];
    if (verdicts.length) parts.push(h("span", { class: "tally" }, icon("tick"), `${right} right`), h("span", { class: "tally" }, icon("cross"), `${verdicts.length - right} wrong`));
    const { threshold } = session.gallery;
    const decided = typeof matches === "number" ? (matches ? plural(matches, "match", "matches") : "no match") : null;
    if (decided) parts.push(h("span", { class: "tally decided", title: threshold ? `matches: distance at most ${threshold.distance.toFixed(4)}; false match rate ${threshold.target} per ${threshold.rate}` : "" }, decided));
    const stages = ["decode", "embed", "search"].filter((name) => took?.[name] > 0.05).map((name) => `${name} ${milliseconds(took[name])}`);
    parts.push(h("span", { class: "took", title: `on the server: ${stages.join(", ")}; answered after ${milliseconds(elapsed)}` }, milliseconds(took?.total)));
    return { parts, said: `${plural(results.length, "result")} in ${milliseconds(took?.total)}${verdicts.length ? `, ${right} right` : ""}${decided ? `, ${decided}` : ""}` };
  }

  const save = () => csv.save("marks.csv", marks.csv());

  const markButtons = h("span", { class: "marks-menu" });
  function drawMarks() {
    const count = marks.count();
    const clear = () => confirm(`Delete ${plural(count, "mark")}?`) && marks.clear();
    markButtons.replaceChildren(...(count ? [button(`Download ${plural(count, "mark")}`, save, { class: "quiet save-marks" }), button("Clear", clear, { class: "quiet" })] : []));
  }

  // The results of a query of the query set follow the protocol; one click shows the rest of the gallery. A search with an
  // upload lists all items.
  function views({ protocol }) {
    if (!protocol || session.files.length) return [];
    const choice = (value, text, title) => button(text, () => state.set({ all: value }), { "aria-pressed": String(Boolean(state.get().all) === Boolean(value)), title });
    const out = `${plural(protocol.left_out, "item")} of the gallery ${protocol.left_out === 1 ? "does" : "do"} not count for this query`;
    return [h("span", { class: "switch", role: "group", "aria-label": "Items" }, choice("", "What counts", [protocol.title, out].filter(Boolean).join(": ")), choice("yes", "All items", `including those that do not count: ${number(protocol.left_out)}`))];
  }

  function models() {
    const { compare } = session.gallery;
    if (!compare || session.files.length) return [];
    const now = state.get().model;
    const choice = (value, text, title) => button(text, () => state.set({ model: value }), { "aria-pressed": String(now === value), title });
    return [h("span", { class: "switch", role: "group", "aria-label": "Model" }, choice("", short(session.gallery.run) || "This model", session.gallery.run), choice("other", short(compare), compare), choice("both", "Both", "side by side")), now === "both" && only()];
  }

  function only() {
    const choice = (value, text, title) => button(text, () => state.set({ only: value }), { "aria-pressed": String(state.get().only === value), title });
    return h("span", { class: "switch", role: "group", "aria-label": "Results of two models" }, choice("", "All", "all results of both models"), choice("yes", "Only in one", "results that the other list does not have"));
  }

  function histogramButton() {
    const { hist, from, to } = state.get();
    const open = Boolean(hist || from || to);
    return [button("Distances", () => state.set(open ? { hist: "", from: "", to: "" } : { hist: "yes" }), { class: "quiet", "aria-pressed": String(open), title: "A histogram of the distances; drag over it to see the results of a range" })];
  }

  function head() {
    const { parts, said } = summary({ ...shown.lists[0], elapsed: shown.elapsed });
    replace(bar, parts, views(shown.lists[0]), models(), histogramButton(), markButtons);
    distances.show(state.get().hist ? shown.lists[0].histogram : null);
    return said;
  }

  function grid({ results, query, model }, other) {
    const title = model === "other" ? short(session.gallery.compare) : short(session.gallery.run) || "this model";
    const ranks = other && new Map(other.results.map((r) => [r.id, r.rank]));
    // What this model finds and the other does not, among as many results.
    const alone = other ? results.filter((result) => !ranks.has(result.id)) : [];
    const right = alone.filter((result) => marks.verdict(query, result) === true).length;
    if (other && state.get().only) results = alone;
    const bounds = boundaries(results);
    const made = new Grid(other ? `Ranked list of ${title}` : "Ranked list", {
      render(item) {
        const element = tile.tile(item, query);
        if (ranks) element.querySelector(".rank").append(moved(item.rank, ranks.get(item.id), other.results.length));
        return element;
      },
      update(cell, item, index) {
        tile.update(cell, item, query);
        bounds.forEach((bound) => line(cell, index, made.columns, bound));
      },
      enter: tile.enter,
      key: (event, item) => tile.key(event, item, query),
      empty: () => (other && state.get().only ? notice("No difference", "Both lists have the same results.") : state.get().from || state.get().to ? notice("No result", "No item has a distance in this range.", button("All distances", () => state.set({ from: "", to: "" }))) : notice("No result", "The filter excludes the whole gallery. Remove a filter above.")),
    });
    const words = `${plural(alone.length, "result")} only here${query.label === null ? "" : `, ${right} right`}`;
    lists.append(h("div", { class: "one" }, other && h("h2", { class: "model" }, cut(title), h("span", { class: "alone" }, words)), made.element));
    made.show(listed(results)).then(() => byKeyboard && document.activeElement === document.body && grids[0] === made && made.focus(0));
    return made;
  }

  let drawnOnly = state.get().only;
  function draw() {
    const { ranking } = session;
    drawnOnly = state.get().only;
    element.setAttribute("aria-busy", String(ranking.status === "loading"));
    if (ranking.status === "loading" && shown) return;
    grids = [];
    shown = null;
    lists.replaceChildren();
    if (ranking.status !== "ready") distances.show(null);
    if (ranking.status !== "ready") replace(bar, ranking.status === "none" ? [] : models());
    if (ranking.status === "ready") {
      shown = ranking;
      announce(head());
      const [first, second] = ranking.lists;
      grids = second ? [grid(first, second), grid(second, first)] : [grid(first)];
    } else if (ranking.status === "error") {
      lists.append(notice(ranking.error.message, ranking.error.hint, button("Try again", session.again), "error"));
      announce(ranking.error.message);
    } else if (ranking.status === "loading") {
      lists.append(notice("Searching…", null, null, "waiting"));
    } else {
      const s = state.get();
      const lost = s.upload && `This link was made with an image from another computer (${s.upload}). A link does not contain images: drop the image here to see the results.`;
      const { text, upload } = session.gallery;
      const without = upload ? "Drop, paste or pick an image, or click one of the gallery." : "Click an image of the gallery to search with it.";
      const start = text ? "Write what you look for, or drop, paste or pick an image." : without;
      lists.append(notice(lost ? "The query image is missing" : "No query yet", lost || start, button("Open the gallery", () => state.set({ view: "gallery" }))));
    }
  }

  session.onRanking(draw);
  marks.subscribe(() => {
    drawMarks();
    if (shown) head();
    grids.forEach((made) => made.refresh());
  });
  drawMarks();
  draw();

  return {
    element,
    get grid() {
      return grids[0];
    },
    key: (event) => queries.key(event),
    show(s) {
      queries.show(s);
      if (s.only !== drawnOnly) draw();
      grids.forEach((made) => made.refresh());
    },
  };
}

// The lines through a ranked list: the first result beyond the threshold, and the first beyond that of near results.
function boundaries(results) {
  const { threshold } = session.gallery;
  if (!threshold || !results[0]?.match) return [];
  const first = (test) => results.findIndex((result) => test(result.match));
  const [match, near] = [first((name) => name !== "match"), first((name) => name === "no_match")];
  const said = (rate) => `${rate} per ${threshold.rate}`;
  return [
    { name: "match", at: match, text: `threshold ${fraction(threshold.distance)}`, title: `matches are before this line: a distance of at most ${fraction(threshold.distance, 4)}, a false match rate of ${said(threshold.target)}` },
    { name: "near", at: near === match ? -1 : near, text: `near ${fraction(threshold.near)}`, title: `near results are before this line: a distance of at most ${fraction(threshold.near, 4)}, ten times the false match rate` },
  ].filter(({ at }) => at >= 0);
}

// The part of a line at a cell. In the row of the boundary it runs below the cells before it and above the others.
function line(cell, index, columns, { name, at, text, title }) {
  const same = Math.floor(index / columns) === Math.floor(at / columns);
  cell.classList.toggle(`${name}-below`, same && index < at);
  cell.classList.toggle(`${name}-above`, same && index >= at);
  cell.classList.toggle(`${name}-left`, index === at && at % columns > 0);
  if (index === at && !cell.querySelector(`.bound.${name}`)) cell.append(h("span", { class: `bound ${name}`, title }, text));
}

// The difference between the ranks of an item in the two lists.
function moved(rank, other, k) {
  if (other === undefined) return h("small", { title: `not among the first ${k} of the other list` }, " new");
  if (other === rank) return h("small", { title: "same rank" }, " =");
  const better = rank < other;
  return h("small", { title: `rank ${other} in the other list` }, better ? ` ▲${other - rank}` : ` ▼${rank - other}`);
}

// Confused classes: how often the nearest item of a query has another class.

import * as actions from "../actions.js";
import * as api from "../api.js";
import { button, h, notice, number, plural } from "../dom.js";
import * as selection from "../selection.js";
import * as session from "../session.js";
import * as state from "../state.js";
import * as tile from "../tile.js";

const MOST = 200;

export function make() {
  const facts = h("span", { class: "facts" });
  const rule = h("span", { class: "rule" });
  const body = h("div", { class: "pairs", role: "list" });
  const element = h("section", { class: "view", "aria-label": "Confused classes" }, h("div", { class: "bar" }, facts, rule), h("div", { class: "scroll" }, body));
  let read = false;

  function row(pair) {
    const query = { id: pair.example.query, label: pair.a, path: null };
    const result = { id: pair.example.result, label: pair.b, path: null };
    const run = () => {
      state.set({ ...selection.NONE, class: [pair.a, pair.b] }, { quiet: true });
      actions.search(query);
    };
    const go = button(`${pair.a} is taken for ${pair.b}`, run, { class: "name" });
    const fill = h("i");
    fill.style.width = `${Math.min(1, pair.share) * 100}%`;
    return h(
      "div",
      { class: "pair", role: "listitem" },
      h("div", { class: "two", onclick: run }, tile.picture(query), h("span", { class: "arrow", "aria-hidden": "true" }, "→"), tile.picture(result)),
      h("div", { class: "what" }, go, h("span", { class: "soft" }, `${plural(pair.count, "query", "queries")}, ${(pair.share * 100).toFixed(1)} % of the class`), h("span", { class: "meter", "aria-hidden": "true" }, fill)),
    );
  }

  async function load() {
    body.replaceChildren(notice("Loading…", null, null, "waiting"));
    try {
      const { pairs } = await api.confusions(MOST);
      read = true;
      rule.textContent = session.gallery.protocol?.rule ?? "";
      facts.textContent = pairs.length === MOST ? `The ${MOST} pairs confused most` : plural(pairs.length, "pair of classes", "pairs of classes");
      facts.textContent += `, ${number(pairs.reduce((sum, pair) => sum + pair.count, 0))} queries`;
      body.replaceChildren(...(pairs.length ? pairs.map(row) : [notice("No class is confused with another", "The nearest item of every query has the class of the query.")]));
    } catch (error) {
      body.replaceChildren(notice(error.message, error.hint, button("Try again", load), "error"));
    }
  }

  return { element, show: () => read || load() };
}

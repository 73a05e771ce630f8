// Steps through the queries of a query set: the place of the query in the list, and how well it is answered.

import * as api from "./api.js";
import { button, fraction, h, number, plural, replace } from "./dom.js";
import * as session from "./session.js";
import * as state from "./state.js";

const ORDERS = [["file", "Order of the file"], ["wrong", "Wrong first"], ["ap", "Worst first"], ["-ap", "Best first"]];

const order = (s) => (ORDERS.some(([value]) => value === s.step) ? s.step : "file");

export function make() {
  const facts = h("span", { class: "facts", role: "status" });
  const buttons = h("span", { class: "buttons" });
  const select = h("select", { "aria-label": "Order of the queries", onchange: () => state.set({ step: select.value }, { quiet: true }) }, ORDERS.map(([value, text]) => h("option", { value }, text)));
  const element = h("div", { class: "steps", role: "group", "aria-label": "Queries", hidden: true }, buttons, facts, select);
  let abort = new AbortController();
  let shown = "";
  let found = null;

  const go = (id) => id && state.set({ ids: [id], crop: [], from: "", to: "" });

  function draw() {
    replace(buttons, [["Previous", found.previous, "p"], ["Next", found.next, "n"]].map(([words, id, key]) => button(words, () => go(id), { disabled: !id, title: `${words} query (${key})` })));
    const first = found.first_match_rank;
    facts.replaceChildren(
      h("b", {}, `Query ${number(found.place + 1)} of ${number(found.total)}`),
      ` · average precision ${fraction(found.average_precision)} · `,
      h("span", { class: first === 1 ? "gained" : "lost" }, first === 1 ? "nearest is right" : "nearest is wrong"),
      first === 1 ? "" : `, first right at rank ${number(first)}`,
      ` · ${plural(found.matches, "match", "matches")}`,
    );
  }

  return {
    element,
    key(event) {
      if (element.hidden || (event.key !== "n" && event.key !== "p")) return false;
      go(event.key === "n" ? found.next : found.previous);
      return true;
    },
    async show(s) {
      const one = s.ids.length === 1 && !session.files.length && (session.gallery.queries || s.step) && session.gallery.failures === "ready";
      const wanted = one ? `${s.ids[0]} ${order(s)}` : "";
      if (wanted === shown) return;
      shown = wanted;
      abort.abort();
      abort = new AbortController();
      if (!one) return void (element.hidden = true);
      select.value = order(s);
      const answer = await api.step(s.ids[0], order(s), abort.signal).catch(() => null);
      if (wanted !== shown) return;
      found = answer;
      // An item of the gallery is no query of the query set.
      element.hidden = typeof found?.place !== "number";
      if (!element.hidden) draw();
    },
  };
}

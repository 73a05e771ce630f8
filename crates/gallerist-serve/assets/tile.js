import * as actions from "./actions.js";
import * as api from "./api.js";
import { cut, fraction, h, icon, tool } from "./dom.js";
import * as marks from "./marks.js";
import * as saved from "./saved.js";
import * as selection from "./selection.js";
import * as session from "./session.js";
import * as state from "./state.js";

export const nameOf = (item) => item.path?.split("/").pop() ?? `item ${item.id}`;

export const describe = (item) => [item.label, nameOf(item)].filter(Boolean).join(", ");

// A screen of high resolution gets the larger thumbnail.
const SIZE = devicePixelRatio > 1.3 ? 320 : 160;

export function picture(item, size = SIZE) {
  if (!session.pictured(item)) return h("div", { class: "picture words" }, h("span", {}, item.path ?? `#${item.id}`));
  const image = h("img", { alt: describe(item), draggable: false, decoding: "async" });
  const frame = h("div", { class: "picture" }, image);
  image.addEventListener("error", () => {
    frame.classList.add("words");
    frame.replaceChildren(h("span", {}, "image not found: " + (item.path ?? item.id)));
  });
  image.src = api.thumbnail(item.id, size);
  return frame;
}

// Verdicts differ in shape and colour. The user's mark takes precedence over the labels and has a ring.
export function verdict(right, marked = false, labels = right) {
  const byLabel = labels === true ? "same label as the query" : labels === false ? "another label than the query's" : "";
  const title = marked ? [`you marked it ${right ? "right" : "wrong"}`, byLabel].filter(Boolean).join("; ") : byLabel;
  return h("span", { class: `verdict ${right ? "right" : "wrong"}${marked ? " marked" : ""}`, title, role: "img", "aria-label": `${marked ? "marked " : ""}${right ? "right" : "wrong"}` }, icon(right ? "tick" : "cross"));
}

// Why a result does not count under the protocol of the gallery.
const LEFT_OUT = { junk: "does not count: the protocol excludes the image", same_camera: "does not count: the query's label, from the query's own camera" };
const leftOut = (reason) => h("span", { class: "verdict none", title: LEFT_OUT[reason], role: "img", "aria-label": "does not count" }, icon("minus"));

function badge(item, mark) {
  if (mark) return verdict(mark === "right", true, item.right);
  if (item.left_out) return leftOut(item.left_out);
  return typeof item.right === "boolean" ? verdict(item.right) : null;
}

// What the threshold of the gallery says about a result.
const DECISION = { match: ["=", "match: within the threshold"], near: ["≈", "near: beyond the threshold, within that of ten times the false match rate"] };

function decision(name) {
  if (!DECISION[name]) return null;
  const [sign, words] = DECISION[name];
  return h("span", { class: `decision ${name}`, title: words, role: "img", "aria-label": name }, sign);
}

export function hover(id) {
  document.dispatchEvent(new CustomEvent("hover-item", { detail: id }));
}

// An item in a grid. With `query` it is a result: it has a distance and a verdict, and can be marked.
export function tile(item, query = null) {
  const search = (event) => (event.shiftKey ? actions.add(item) : event.ctrlKey || event.metaKey || selection.picking ? selection.toggle(item) : actions.search(item));
  const shown = picture(item);
  shown.addEventListener("click", search);
  const caption = h("div", { class: "caption" }, cut(item.label ?? nameOf(item), { class: "label", title: describe(item) }), query && decision(item.match), query && item.group_size > 1 && h("span", { class: "distance", title: `${item.group_size} items of the group` }, `×${item.group_size}`), query && h("span", { class: "distance" }, fraction(item.distance)));
  const tools = h("div", { class: "tools" }, tool("plus", "Add to the query (a)", () => actions.add(item), { tabIndex: -1 }), tool("open", "Details (o)", () => actions.open(item), { tabIndex: -1 }));
  const element = h("div", { class: "tile", onpointerenter: () => hover(item.id), onpointerleave: () => hover(null) }, shown, tools, caption);
  if (query) {
    shown.append(h("span", { class: "rank" }, item.rank));
    const mark = (name, shape, words) => tool(shape, words, () => marks.toggle(query, item, name), { tabIndex: -1, class: `tool mark ${name}` });
    element.append(h("div", { class: "marks" }, mark("right", "tick", "Mark as right (r)"), mark("wrong", "cross", "Mark as wrong (w)")));
  }
  return element;
}

// The first tags of an item, and the number of the others.
const SHOWN = 2;
const labels = (tags) => h("span", { class: "tags", title: tags.join(", "), "aria-hidden": "true" }, tags.slice(0, SHOWN).map((tag) => h("span", {}, tag)), tags.length > SHOWN && h("span", {}, `+${tags.length - SHOWN}`));

export function update(cell, item, query = null) {
  const s = state.get();
  const mark = marks.of(query, item.id);
  const selected = selection.exists(s) && selection.has(s, item);
  cell.classList.toggle("selected", selected);
  cell.classList.toggle("queried", s.ids.includes(item.id));
  cell.classList.toggle("marked", Boolean(mark));
  if (query) {
    cell.querySelector(".verdict")?.remove();
    const shown = badge(item, mark);
    if (shown) cell.querySelector(".picture")?.append(shown);
  }
  const tags = saved.tagsOf(item);
  cell.querySelector(".tags")?.remove();
  if (tags.length) cell.querySelector(".picture")?.append(labels(tags));
  for (const name of ["right", "wrong"]) cell.querySelector(`.mark.${name}`)?.setAttribute("aria-pressed", String(mark === name));
  cell.setAttribute("aria-selected", String(selected));
  const said = [query ? `rank ${item.rank}` : null, describe(item), query ? `distance ${fraction(item.distance)}` : null, query && item.group_size > 1 ? `${item.group_size} in its group` : null, item.right === true ? "right" : item.right === false ? "wrong" : item.left_out ? "does not count" : null, DECISION[item.match]?.length ? item.match : null, mark ? `marked ${mark}` : null, tags.length ? `tagged ${tags.join(" and ")}` : null];
  cell.setAttribute("aria-label", said.filter(Boolean).join(", "));
}

// Handles the keys of a tile. Returns whether the key was one of them.
export function key(event, item, query = null) {
  if (event.key === "a") actions.add(item);
  else if (event.key === "o") actions.open(item);
  else if (event.key === "c") actions.cropItem(item);
  else if (event.key === " ") selection.toggle(item);
  else if (query && event.key === "r") marks.toggle(query, item, "right");
  else if (query && event.key === "w") marks.toggle(query, item, "wrong");
  else return false;
  return true;
}

export const enter = (item, event) => (event.shiftKey ? actions.add(item) : selection.picking ? selection.toggle(item) : actions.search(item));

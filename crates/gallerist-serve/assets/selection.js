// The selection, which all views show: items, classes, or a region of the map. It is part of the address. A region is
// stored as its polygon, so that a link to ten thousand items stays short.

import * as api from "./api.js";
import { plural, toast } from "./dom.js";
import * as session from "./session.js";
import * as state from "./state.js";

export const NONE = { sel: [], class: [], lasso: "" };

export const exists = (s) => s.sel.length > 0 || s.class.length > 0 || s.lasso !== "";

export const polygon = (text) => text.split(";").map((pair) => pair.split(",").map(Number)).filter((p) => p.length === 2 && p.every(Number.isFinite));
export const format = (corners) => corners.map(([x, y]) => `${shorten(x)},${shorten(y)}`).join(";");
const shorten = (value) => String(Number(value.toPrecision(5)));

let known = { key: "" };

// The points of the map in the region, or null if the points are not loaded yet.
export function region(s) {
  if (!s.lasso || !session.points) return null;
  if (known.key !== s.lasso) {
    const indices = session.points.inside(polygon(s.lasso));
    const mask = new Uint8Array(session.points.count);
    for (const i of indices) mask[i] = 1;
    known = { key: s.lasso, indices, mask };
  }
  return known;
}

// Whether a label is one of `wanted`, or a set (`heron|wading`) with one of them. The server selects items by the same rule.
export function isOf(wanted, label) {
  if (!label) return false;
  return wanted.includes(label) || (label.includes("|") && label.split("|").some((part) => part.trim() && wanted.includes(part.trim())));
}

export function has(s, item) {
  if (s.sel.length) return s.sel.includes(item.id);
  if (s.class.length) return isOf(s.class, item.label);
  return region(s)?.mask[session.points.index(item.id)] === 1;
}

// Whether a click on an image selects it instead of searching with it.
export let picking = false;
export const pick = (on) => (picking = on);

export function describe(s, total) {
  const count = total === undefined ? "" : plural(total, "item");
  if (s.sel.length) return `${count} selected`;
  if (s.class.length) return `${count} of ${s.class.join(" and ")}`;
  return `${count} in the region`;
}

// The selection in words, without asking the server for the number of items of a class.
export const summary = (s) => (s.class.length ? `Items of ${s.class.join(" and ")}` : describe(s, s.sel.length || (region(s)?.indices.length ?? 0)));

// The most items of a selection that are named by their ids.
const MOST = 100_000;

// The ids of the selected items.
export async function ids(s) {
  if (s.sel.length) return s.sel;
  if (!s.class.length) {
    if (!session.points) await session.readPoints();
    return Array.from(region(s)?.indices ?? [], (one) => session.points.id(one));
  }
  const found = [];
  let total = 1;
  while (found.length < total) {
    const page = await api.items({ label: s.class }, found.length, 500);
    total = page.items.length ? page.total : found.length;
    if (total > MOST) throw new Error(`These are ${plural(total, "item")}; at most ${plural(MOST, "item")} are saved.`);
    found.push(...page.items.map((item) => item.id));
  }
  return found;
}

// The selected items as a source for a grid.
export function source(s) {
  if (s.class.length) return { load: (offset, limit, signal) => api.items({ label: s.class }, offset, limit, signal) };
  const chosen = s.sel.length ? s.sel : (region(s)?.indices ?? []);
  const id = (one) => (s.sel.length ? one : session.points.id(one));
  return {
    load: async (offset, limit, signal) => {
      const part = Array.from(chosen.slice(offset, offset + limit), id);
      const found = new Map((part.length ? await api.lookup(part, signal) : []).map((item) => [item.id, item]));
      return { items: part.map((one) => found.get(one) ?? null), total: chosen.length };
    },
  };
}

// The most items that are selected one by one: the address names each.
const PICKED = 500;

export function toggle(item) {
  const { sel } = state.get();
  const selected = sel.includes(item.id);
  if (!selected && sel.length >= PICKED) return toast(`At most ${plural(PICKED, "image")} are selected one by one. Save the selection and clear it first.`);
  state.set({ ...NONE, sel: selected ? sel.filter((id) => id !== item.id) : [...sel, item.id] });
}

export const clear = () => state.set(NONE);

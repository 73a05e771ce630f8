// The user's verdicts on results. The browser stores them; they leave it only as a CSV file that the user downloads.

import { format } from "./csv.js";

let name = "";
let marks = new Map();
const listeners = new Set();

export function open(gallery) {
  name = `gallerist marks ${gallery.name} ${gallery.model ?? ""}`;
  try {
    marks = new Map(Object.entries(JSON.parse(localStorage.getItem(name) ?? "{}")));
  } catch {
    marks = new Map();
  }
}

const key = (query, id) => JSON.stringify([query.key, id]);

export const subscribe = (listener) => listeners.add(listener);
export const count = () => marks.size;
export const of = (query, id) => (query ? marks.get(key(query, id))?.mark : undefined);

// Whether a result is right: by its mark, or without one by the labels.
export const verdict = (query, result) => (of(query, result.id) ? of(query, result.id) === "right" : result.right);

// Sets a mark; setting the same mark again removes it. `query` is `{ key, ids, name, label }`.
export function toggle(query, result, mark) {
  const at = key(query, result.id);
  if (marks.get(at)?.mark === mark) {
    marks.delete(at);
  } else {
    marks.set(at, {
      query: query.ids.join("+"),
      query_name: query.name,
      query_label: query.label ?? "",
      result: result.id,
      result_path: result.path ?? "",
      result_label: result.label ?? "",
      rank: result.rank,
      distance: result.distance,
      mark,
    });
  }
  save();
  return marks.get(at)?.mark;
}

export function clear() {
  marks.clear();
  save();
}

function save() {
  try {
    localStorage.setItem(name, JSON.stringify(Object.fromEntries(marks)));
  } catch {
    // A private window may not store anything; then the marks exist until the page is closed.
  }
  listeners.forEach((listener) => listener());
}

const COLUMNS = ["query", "query_name", "query_label", "result", "result_path", "result_label", "rank", "distance", "mark"];

export const csv = () => format([COLUMNS, ...[...marks.values()].map((mark) => COLUMNS.map((column) => mark[column]))]);

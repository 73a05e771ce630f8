// The state of the page is its address: the hash contains everything that a link restores. It is parsed into one object,
// which every view reads.

const LISTS = ["ids", "crop", "label", "not_label", "camera", "sel", "class"];
const WORDS = ["view", "set", "side", "k", "all", "lasso", "open", "model", "sort", "upload", "at", "where", "order", "group", "hist", "from", "to", "names", "gallery", "step", "only", "saved", "text"];
const STANDARD = { view: "gallery", set: "", side: "", k: 20, all: "", lasso: "", open: "", model: "", sort: "", upload: "", at: "", where: "", order: "", group: "", hist: "", from: "", to: "", names: "", gallery: "", step: "", only: "", saved: "", text: "" };

export function parse(hash) {
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  const state = {};
  for (const name of LISTS) {
    const values = given.getAll(name);
    const split = name === "ids" || name === "sel";
    state[name] = split ? values.flatMap((v) => v.split(",")).filter((v) => /^\d{1,20}$/.test(v)) : values;
  }
  for (const name of WORDS) state[name] = given.get(name) ?? STANDARD[name];
  state.k = Math.max(1, Math.floor(Number(state.k)) || STANDARD.k);
  return state;
}

export function format(state) {
  const parts = [];
  const add = (name, value) => parts.push(`${name}=${encodeURIComponent(value).replaceAll("%2C", ",")}`);
  for (const name of ["view", "ids", "k", ...WORDS, ...LISTS].filter((n, i, all) => all.indexOf(n) === i)) {
    const value = state[name];
    if (name === "ids" || name === "sel") {
      if (value.length) add(name, value.join(","));
    } else if (Array.isArray(value)) {
      value.forEach((v) => add(name, v));
    } else if (name === "view" || String(value) !== String(STANDARD[name])) {
      add(name, value);
    }
  }
  return "#" + parts.join("&");
}

let current = parse(location.hash);
const listeners = new Set();

export const get = () => current;

export function subscribe(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function become(next) {
  current = next;
  listeners.forEach((listener) => listener(current));
}

// Changes the state. The back button undoes the change, unless it is `quiet` (the position of the map).
export function set(change, { quiet = false } = {}) {
  const next = { ...current, ...change };
  const address = format(next);
  if (address === format(current)) return;
  if (quiet) history.replaceState(null, "", address);
  else history.pushState(null, "", address);
  become(next);
}

addEventListener("popstate", () => become(parse(location.hash)));

// Tags and saved selections: named lists of items. The server stores them if it can be changed and the page has its token;
// otherwise they are kept in this tab until it is closed.

import * as api from "./api.js";
import { toast } from "./dom.js";

export const KINDS = { selections: "selection", tags: "tag" };

// The most items of a list that is kept in this tab: the server takes as many in a filter.
const MOST = 1000;

const TOKEN = "gallerist token";
let place = "";
let token = "";
let server = { writable: false, authorized: false, file: null, tags: [], selections: [] };
// Name -> ids, of each kind.
let own = { tags: {}, selections: {} };
// Tags that were added or removed here since the items were loaded: id -> tag -> whether it has it.
const since = new Map();
const listeners = new Set();
// Increases with each change, so that views know what they have shown.
export let version = 0;

export const subscribe = (listener) => listeners.add(listener);

function changed() {
  version++;
  listeners.forEach((listener) => listener());
}

const read = (key) => {
  try {
    return sessionStorage.getItem(key);
  } catch {
    return null;
  }
};

function keep(key, value) {
  try {
    sessionStorage.setItem(key, value);
  } catch {
    // Without storage they exist until the page is left.
  }
}

const keepOwn = () => keep(place, JSON.stringify(own));

export async function open(gallery) {
  place = `gallerist saved ${gallery.gallery} ${gallery.name} ${gallery.model ?? ""}`;
  token = read(TOKEN) ?? "";
  try {
    const { tags = {}, selections = {} } = JSON.parse(read(place) ?? "{}");
    own = { tags, selections };
  } catch {
    own = { tags: {}, selections: {} };
  }
  await ask().catch(() => null);
}

async function ask() {
  server = await api.saved(token);
  changed();
}

// What the server says: whether it stores lists, whether this page has its token, the name of its file.
export const about = () => server;
api.filterSaved(filter);

export const isStored = () => server.writable && server.authorized;

export const isOwn = (kind, name) => Object.hasOwn(own[kind], name);
export const ownCount = () => Object.keys(own.tags).length + Object.keys(own.selections).length;

// All lists of a kind by name: `{ name, count, unknown, own }`. Those of this tab are `own`.
export function lists(kind) {
  const here = Object.entries(own[kind]).map(([name, ids]) => ({ name, count: ids.length, unknown: 0, own: true }));
  return [...server[kind].map((list) => ({ ...list, own: false })), ...here].sort((a, b) => a.name.localeCompare(b.name));
}

// The tags of an item as it was loaded, with the changes since then.
export function tagsOf(item) {
  const tags = new Set(item.tags ?? []);
  since.get(item.id)?.forEach((has, tag) => (has ? tags.add(tag) : tags.delete(tag)));
  for (const [name, ids] of Object.entries(own.tags)) if (ids.includes(item.id)) tags.add(name);
  return [...tags].sort();
}

// The parameters of a request for the items of a list: `tags:NAME` or `selections:NAME`.
export function filter(saved) {
  if (!saved) return {};
  const [kind, name] = split(saved);
  if (!KINDS[kind]) return {};
  return isOwn(kind, name) ? { only: own[kind][name] } : { [KINDS[kind]]: name };
}

export function split(saved) {
  const at = saved.indexOf(":");
  return [saved.slice(0, at), saved.slice(at + 1)];
}

function remember(kind, name, add, remove) {
  if (kind !== "tags") return;
  for (const [ids, has] of [[add, true], [remove, false]]) {
    for (const id of ids) {
      if (!since.has(id)) since.set(id, new Map());
      since.get(id).set(name, has);
    }
  }
}

// Adds items to a list, or removes items. Throws what the user should read.
export async function change(kind, name, { add = [], remove = [] }) {
  if (isStored() && !isOwn(kind, name)) {
    await api.changeSaved(kind, name, { add, remove }, token);
    remember(kind, name, add, remove);
    return ask();
  }
  if (server[kind].some((list) => list.name === name)) throw new Error(`The server has a ${KINDS[kind]} “${name}”, which only its token can change. Choose another name.`);
  const gone = new Set(remove);
  const ids = [...new Set([...(isOwn(kind, name) ? own[kind][name] : []), ...add])].filter((id) => !gone.has(id));
  if (ids.length > MOST) throw new Error(`A ${KINDS[kind]} in this tab has at most ${MOST} items.`);
  if (ids.length) own[kind] = { ...own[kind], [name]: ids };
  else delete own[kind][name];
  keepOwn();
  changed();
}

// `done` is called before the views hear of it, so that they do not ask for the old name.
export async function rename(kind, name, to, done) {
  if (to === name) return;
  if (!isOwn(kind, name)) {
    await api.changeSaved(kind, name, { name: to }, token);
    if (kind === "tags") since.forEach((tags) => tags.has(name) && (tags.set(to, tags.get(name)), tags.delete(name)));
    done();
    return ask();
  }
  if (lists(kind).some((list) => list.name === to)) throw new Error(`There is already a ${KINDS[kind]} “${to}”.`);
  own[kind][to] = own[kind][name];
  delete own[kind][name];
  keepOwn();
  done();
  changed();
}

export async function remove(kind, name, done) {
  if (!isOwn(kind, name)) {
    await api.deleteSaved(kind, name, token);
    if (kind === "tags") since.forEach((tags) => tags.set(name, false));
    done();
    return ask();
  }
  delete own[kind][name];
  keepOwn();
  done();
  changed();
}

// The ids of a list of this tab.
export const ownIds = (kind, name) => own[kind][name] ?? [];

// Opens a server that only answers clients with a token: with the token of this tab, or with `text`, which is then kept in
// this tab. Returns whether the server knows it.
export async function signIn(text = read(TOKEN)) {
  if (!text) return false;
  try {
    await api.signIn(text);
  } catch (error) {
    if (error.status === 401) return false;
    throw error;
  }
  keep(TOKEN, text);
  return true;
}

// Whether the server permits changes with this token; then it is kept in this tab.
export async function useToken(text) {
  const answer = await api.saved(text);
  if (!answer.authorized) return false;
  token = text;
  keep(TOKEN, token);
  server = answer;
  changed();
  return true;
}

// Adds the lists of this tab to those of the server.
export async function store() {
  for (const kind of Object.keys(KINDS)) {
    for (const [name, ids] of Object.entries(own[kind])) {
      await api.changeSaved(kind, name, { add: ids }, token);
      remember(kind, name, ids, []);
      delete own[kind][name];
      keepOwn();
    }
  }
  await ask();
}

// Runs an action and shows the user why it fails.
export async function attempt(action) {
  try {
    await action();
    return true;
  } catch (error) {
    toast([error.message, error.hint].filter(Boolean).join("; "));
    return false;
  }
}

// The server's JSON interface (GET /openapi.json describes it). Ids are strings: a JavaScript number would round them.

export class ApiError extends Error {
  constructor(message, hint, status) {
    super(message);
    this.hint = hint;
    this.status = status;
  }
}

async function call(path, options = {}) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("the server does not answer", "is `gallerist serve` still running?", 0);
  }
  if (response.ok) return response;
  const body = await response.json().catch(() => ({}));
  throw new ApiError(body.error ?? `the server answered with status ${response.status}`, body.hint ?? null, response.status);
}

const json = async (path, options) => (await call(path, options)).json();

const post = (path, body, signal) =>
  json(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body), signal });

export function query(parameters) {
  const pairs = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== undefined && one !== null && one !== "") pairs.append(name, one);
    }
  }
  return pairs.size ? `?${pairs}` : "";
}

// The gallery of a server with several; "" is the first.
let chosen = "";
export const choose = (gallery) => (chosen = gallery);
const at = (path, parameters = {}) => path + query({ ...parameters, gallery: chosen });

// Gives the parameters for the items of a saved list; set by saved.js.
let ofSaved = () => ({});
export const filterSaved = (parameters) => (ofSaved = parameters);

const filters = ({ label, not_label, camera, where, saved }) => ({ label, not_label, camera, where: where || undefined, ...lists(ofSaved(saved)) });
// A body has lists where an address has one value.
const lists = (parameters) => Object.fromEntries(Object.entries(parameters).map(([name, value]) => [name, [value].flat()]));

export const gallery = () => json(at("api/v1/gallery"));
export const items = (state, offset, limit, signal) => json(at("api/v1/items", { set: state.set, offset, limit, order: state.order, ...filters(state) }), { signal });
export const item = (id, signal) => json(at(`api/v1/items/${id}`), { signal });
export const lookup = (ids, signal) => post(at("api/v1/items/lookup"), { ids }, signal).then((answer) => answer.items);
export const labels = (contains, limit, signal) => json(at("api/v1/labels", { contains, limit }), { signal });

// `files` are `{ file, name, region }`, `regions` the regions of `ids`; null for the whole image.
export function search({ ids, files, text, regions = [], k, model, all, histogram, min_distance, max_distance, group, ...rest }, signal) {
  const number = (value) => (value === "" || value === undefined ? undefined : Number(value));
  const options = { k, ...filters(rest), model, group: group || undefined, histogram, min_distance: number(min_distance), max_distance: number(max_distance) };
  if (files.length) {
    const form = new FormData();
    files.forEach(({ file }) => form.append("image", file, file.name));
    ids.forEach((id) => form.append("id", id));
    if (text) form.append("text", text);
    [...files.map(({ region }) => region), ...regions].forEach((region) => form.append("region", region?.join(",") ?? ""));
    for (const [name, value] of Object.entries(options)) {
      for (const one of [value ?? []].flat()) form.append(name, one);
    }
    return json(at("api/v1/search/upload"), { method: "POST", body: form, signal });
  }
  // A search with an upload lists all items in any case.
  const view = all ? "all" : undefined;
  if (ids.length === 1 && !text) return json(at(`api/v1/items/${ids[0]}/similar`, { ...options, view, region: regions[0]?.join(",") }), { signal });
  return post(at("api/v1/search"), { ids, regions, texts: text ? [text] : [], ...options, view }, signal);
}

const authorization = (token) => (token ? { authorization: `Bearer ${token}` } : {});
// Exchanges a token for a cookie, with which pictures are loaded, too.
export const signIn = (token) => call("api/v1/session", { method: "POST", headers: authorization(token) });

const savedAt = (kind, name) => `api/v1/saved/${kind}/${encodeURIComponent(name)}`;

export const saved = (token) => json(at("api/v1/saved"), { headers: authorization(token) });
export const changeSaved = (kind, name, change, token) => json(at(savedAt(kind, name)), { method: "POST", headers: { "content-type": "application/json", ...authorization(token) }, body: JSON.stringify(change) });
export const deleteSaved = (kind, name, token) => call(at(savedAt(kind, name)), { method: "DELETE", headers: authorization(token) });
export const savedTable = (kind, name) => at(`${savedAt(kind, name)}/csv`);

export const map = () => json(at("api/v1/map"));
export const points = async () => (await call(at("api/v1/map/points"))).arrayBuffer();
export const clusters = (by) => json(at("api/v1/map/clusters", { by }));
export const failures = (sort, offset, limit, signal) => json(at("api/v1/failures", { sort, offset, limit }), { signal });
export const step = (id, sort, signal) => json(at(`api/v1/failures/${id}`, { sort }), { signal });
export const confusions = (limit) => json(at("api/v1/confusions", { limit }));
export const pairs = (kind, distance, offset, limit, signal) => json(at(`api/v1/${kind}`, { distance, offset, limit }), { signal });
export const compare = (sort, offset, limit, signal) => json(at("api/v1/compare", { sort, offset, limit }), { signal });
export const heatmap = (queryId, itemId, signal) => json(at("api/v1/heatmap", { query: queryId, item: itemId }), { signal });

export const thumbnail = (id, size = 160) => at(`thumbnails/${id}`, { size: size === 160 ? "" : size });
export const image = (id) => at(`images/${id}`);

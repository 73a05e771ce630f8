// State that the views share and that is not in the address: the gallery's facts, the uploaded images, the ranked list,
// the points of the map.

import * as api from "./api.js";
import { format, parse } from "./crop.js";
import { toast } from "./dom.js";
import { Points } from "./points.js";
import * as state from "./state.js";

// The bars of the histogram of distances.
export const BARS = 60;

export let gallery = null;

// Whether there are pictures at all. An item without a picture shows its name.
export const anyPictures = () => Boolean(gallery.images || gallery.queries?.images || gallery.training_images);

// Whether the set of the item (the gallery, the queries, or the training images) has pictures.
export const pictured = (item) => (item.set === "query" ? gallery.queries?.images : item.set === "training" ? gallery.training_images : gallery.images);

export async function open() {
  gallery = await api.gallery();
  return gallery;
}

// Polls while the server computes; `changed` is called when a result is ready.
export function watch(changed) {
  if (![gallery.map, gallery.failures].includes("computing")) return;
  setTimeout(async () => {
    try {
      const now = await api.gallery();
      const news = now.map !== gallery.map || now.failures !== gallery.failures;
      gallery = now;
      if (news) changed();
    } catch {
      // The request is repeated below.
    }
    watch(changed);
  }, 1500);
}

// ---- The query: items by id (in the address), and uploaded images (only here).

export let files = [];

export function setFiles(list) {
  files.forEach((file) => list.some(({ url }) => url === file.url) || URL.revokeObjectURL(file.url));
  files = list;
}

// The region of an item of the query, or null for all of its image.
export const regionOf = (s, id) => parse(s.crop.find((entry) => entry.startsWith(`${id}:`))?.slice(id.length + 1));

export const hasQuery = (s = state.get()) => s.ids.length + files.length > 0 || Boolean(s.text);

// ---- The ranked list of the query; if two models are compared, also the list of the other model.

let generation = 0;
let key = "";
let abort = new AbortController();
const listeners = new Set();
export let ranking = { status: "none" };

export const onRanking = (listener) => listeners.add(listener);

const turn = (next) => {
  ranking = next;
  listeners.forEach((listener) => listener(ranking));
};

const queryOf = (s, queries) => {
  const names = queries.map((q) => q.name ?? q.id ?? "image");
  const known = [...new Set(queries.map((q) => q.label).filter((label) => label !== null && label !== undefined))];
  const part = (name, region) => (region ? `${name}@${format(region)}` : name);
  return { key: [...(s.text ? [`text ${s.text}`] : []), ...s.ids.map((id) => part(id, regionOf(s, id))), ...files.map((file) => part(`${file.name}:${file.size}`, file.region))].join("+"), ids: s.ids, name: names.join(" + "), label: known.length === 1 ? known[0] : null };
};

export function follow(s) {
  const wanted = JSON.stringify([s.ids, s.text, s.ids.map((id) => regionOf(s, id)), s.k, s.all, s.label, s.not_label, s.camera, s.where, s.saved, s.group, s.model, s.hist, s.from, s.to, files.map((file) => [file.url, file.region])]);
  if (wanted === key) return;
  key = wanted;
  rank(s);
}

// Resolves when no search is running and its results are drawn. Long computations wait for it.
export async function calm() {
  while (ranking.status === "loading") {
    await new Promise((resolve) => {
      const heard = () => listeners.delete(heard) && resolve();
      listeners.add(heard);
    });
  }
  await new Promise(requestAnimationFrame);
  await new Promise((resolve) => setTimeout(resolve, 0));
}

export const again = () => rank(state.get());

async function rank(s) {
  const mine = ++generation;
  abort.abort();
  abort = new AbortController();
  if (!hasQuery(s)) return turn({ status: "none" });
  turn({ ...ranking, status: "loading" });
  const asked = { ...s, k: Math.min(s.k, gallery.limits?.k ?? s.k), files, regions: s.ids.map((id) => regionOf(s, id)) };
  const both = Boolean(gallery.compare) && !files.length && !s.text && !asked.regions.some(Boolean);
  const models = !both ? [undefined] : s.model === "other" ? ["other"] : s.model === "both" ? [undefined, "other"] : [undefined];
  const began = performance.now();
  try {
    // Distances of different models cannot be compared: a range is one of the first list.
    const distances = { histogram: s.hist ? BARS : undefined, min_distance: s.from, max_distance: s.to };
    const answers = await Promise.all(models.map((model, i) => api.search({ ...asked, model, ...(i ? {} : distances) }, abort.signal)));
    if (mine !== generation) return;
    const lists = answers.map((answer, i) => ({ model: models[i] ?? "this", took: answer.took_ms, results: answer.results, histogram: answer.histogram, matches: answer.matches, protocol: answer.protocol, query: queryOf(s, answer.queries) }));
    const cut = answers[0].queries.find(({ cut_to }) => cut_to);
    if (cut) toast(`The text is too long: only its first ${cut.cut_to} tokens count.`);
    turn({ status: "ready", lists, query: lists[0].query, results: lists[0].results, elapsed: performance.now() - began });
  } catch (error) {
    if (mine === generation && error.name !== "AbortError") turn({ status: "error", error });
  }
}

// ---- The points of the map, loaded when a view first needs them.

let reading = null;
export let points = null;

export function readPoints() {
  reading ??= (async () => {
    const facts = await api.map();
    if (facts.state !== "ready") {
      reading = null;
      return facts;
    }
    points = new Points(await api.points(), facts.labels);
    return { ...facts, points };
  })().catch((error) => {
    reading = null;
    throw error;
  });
  return reading;
}

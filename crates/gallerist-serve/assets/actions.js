// Actions on an item, the same in every view.

import * as api from "./api.js";
import * as crop from "./crop.js";
import { plural, toast } from "./dom.js";
import * as session from "./session.js";
import * as state from "./state.js";

export const narrow = matchMedia("(max-width: 56rem)");

const searching = () => {
  const { view, side } = state.get();
  const alone = view === "gallery" || (narrow.matches && view !== "map");
  // A range of distances belongs to one query.
  return { from: "", to: "", ...(alone ? { view: "ranked" } : {}), side: side === "ranked" || view === "ranked" ? side : "", upload: "", open: "" };
};

export function search(item) {
  session.setFiles([]);
  state.set({ ...searching(), ids: [item.id], crop: [], text: "" });
}

// Searches with words. They replace the present query; images may be added to them.
export function searchText(text) {
  if (text.trim()) session.setFiles([]);
  state.set(text.trim() ? { ...searching(), text: text.trim(), ids: [], crop: [] } : { text: "" });
}

// The regions of the query's items, with that of one item changed; null for the whole image.
function regions(id, region) {
  const others = state.get().crop.filter((entry) => !entry.startsWith(`${id}:`));
  return region ? [...others, `${id}:${crop.format(region)}`] : others;
}

// Lets the user choose a region of an item, and searches with it. An item that is not part of the query replaces it.
export function cropItem(item) {
  if (!canCrop(item)) return;
  const { ids } = state.get();
  const asked = ids.includes(item.id);
  const done = (region) => {
    if (asked) return state.set({ crop: regions(item.id, region) });
    session.setFiles([]);
    state.set({ ...searching(), ids: [item.id], text: "", crop: region ? [`${item.id}:${crop.format(region)}`] : [] });
  };
  crop.open({ source: api.image(item.id), name: item.label ?? `item ${item.id}`, region: session.regionOf(state.get(), item.id), done });
}

// A region is embedded by the network, from the picture.
export const canCrop = (item) => Boolean(session.gallery.upload && session.pictured(item));

export function cropFile(file) {
  const done = (region) => {
    // A new object, because the ranked list compares the query with the former one.
    session.setFiles(session.files.map((other) => (other === file ? { ...file, region } : other)));
    uploaded({});
  };
  crop.open({ source: file.url, name: file.name, region: file.region, done });
}

const room = () => (session.gallery.limits?.queries ?? 3) - state.get().ids.length - session.files.length - (state.get().text ? 1 : 0);

export function add(item) {
  const { ids } = state.get();
  if (ids.includes(item.id)) return;
  if (room() < 1) return toast(`A query has at most ${plural(session.gallery.limits?.queries ?? 3, "image")}. Remove one first.`);
  state.set({ ...searching(), upload: session.files.map((file) => file.name).join(", "), ids: [...ids, item.id] });
}

export function remove(id) {
  state.set({ ids: state.get().ids.filter((other) => other !== id), crop: regions(id, null) });
}

export function removeFile(file) {
  session.setFiles(session.files.filter((other) => other !== file));
  uploaded({});
}

export const clear = () => {
  session.setFiles([]);
  state.set({ ids: [], crop: [], text: "", upload: "", open: "" });
};

export const open = (item) => state.set({ open: item.id });

// Searches with images that were dropped, pasted or picked. Several images form one query. They replace the present
// query, unless `together` is set: then they are added to it.
export function upload(list, together = false) {
  const { gallery } = session;
  const images = [...list].filter((file) => file.type.startsWith("image/") || /\.(jpe?g|png|bmp|gif|webp|tiff?|pnm|ppm|pgm)$/i.test(file.name));
  if (!images.length) return toast(list.length ? `${list[0].name || "The file"} is not an image.` : "It contained no image.");
  if (!gallery.upload) return toast("This gallery was opened without its network, so it can be searched only with its own images.");
  const limit = gallery.limits?.upload_bytes ?? Infinity;
  const large = images.find((file) => file.size > limit);
  if (large) return toast(`${large.name} has ${(large.size / 1e6).toFixed(1)} MB; the server accepts at most ${(limit / 1e6).toFixed(1)} MB.`);
  const free = together ? room() : (gallery.limits?.queries ?? 3);
  if (free < 1) return toast("The query is full. Remove an image first.");
  if (images.length > free) toast(`A query has at most ${gallery.limits?.queries ?? 3} images; the first ${free} were added.`);
  const added = images.slice(0, free).map((file) => ({ file, name: file.name || "pasted image", size: file.size, url: URL.createObjectURL(file) }));
  session.setFiles(together ? [...session.files, ...added] : added);
  uploaded({ ...searching(), ...(together ? {} : { ids: [], crop: [], text: "" }) });
}

// The address does not contain files, so it may stay the same; the ranked list is notified in any case.
function uploaded(change) {
  state.set({ ...change, upload: session.files.map((file) => file.name).join(", ") });
  session.follow(state.get());
}

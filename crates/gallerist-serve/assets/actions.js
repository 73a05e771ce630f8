// What can be done with an item, wherever it is shown.

import { plural, toast } from "./dom.js";
import * as session from "./session.js";
import * as state from "./state.js";

export const narrow = matchMedia("(max-width: 56rem)");

const searching = () => {
  const { view, side } = state.get();
  const alone = view === "gallery" || (narrow.matches && view !== "map");
  return { ...(alone ? { view: "ranked" } : {}), side: side === "ranked" || view === "ranked" ? side : "", upload: "", open: "" };
};

export function search(item) {
  session.setFiles([]);
  state.set({ ...searching(), ids: [item.id] });
}

const room = () => (session.gallery.limits?.queries ?? 3) - state.get().ids.length - session.files.length;

export function add(item) {
  const { ids } = state.get();
  if (ids.includes(item.id)) return;
  if (room() < 1) return toast(`A query has at most ${plural(session.gallery.limits?.queries ?? 3, "image")}. Remove one first.`);
  state.set({ ...searching(), upload: session.files.map((file) => file.name).join(", "), ids: [...ids, item.id] });
}

export function remove(id) {
  state.set({ ids: state.get().ids.filter((other) => other !== id) });
}

export function removeFile(file) {
  session.setFiles(session.files.filter((other) => other !== file));
  uploaded({});
}

export const clear = () => {
  session.setFiles([]);
  state.set({ ids: [], upload: "", open: "" });
};

export const open = (item) => state.set({ open: item.id });

// Images that were dropped, pasted or picked. Several make one query together; one more with a query there replaces
// it, unless `together`.
export function upload(list, together = false) {
  const { gallery } = session;
  const images = [...list].filter((file) => file.type.startsWith("image/") || /\.(jpe?g|png|bmp|gif|webp|tiff?|pnm|ppm|pgm)$/i.test(file.name));
  if (!images.length) return toast(list.length ? `${list[0].name || "What came"} is not an image.` : "There was no image in it.");
  if (!gallery.upload) return toast("This gallery was opened without its network, so that images from outside cannot be compared with it.");
  const limit = gallery.limits?.upload_bytes ?? Infinity;
  const large = images.find((file) => file.size > limit);
  if (large) return toast(`${large.name} has ${(large.size / 1e6).toFixed(1)} MB; the server takes ${(limit / 1e6).toFixed(1)} MB.`);
  const free = together ? room() : (gallery.limits?.queries ?? 3);
  if (free < 1) return toast("The query is full. Remove an image first.");
  if (images.length > free) toast(`A query has at most ${gallery.limits?.queries ?? 3} images; the first ${free} were taken.`);
  const added = images.slice(0, free).map((file) => ({ file, name: file.name || "pasted image", size: file.size, url: URL.createObjectURL(file) }));
  session.setFiles(together ? [...session.files, ...added] : added);
  uploaded({ ...searching(), ...(together ? {} : { ids: [] }) });
}

// Files are not in the address; the ranked list is told of them, too, when the address stays the same.
function uploaded(change) {
  state.set({ ...change, upload: session.files.map((file) => file.name).join(", ") });
  session.follow(state.get());
}

// The names of the clusters of the map, at their places, without overlap.

import * as api from "./api.js";
import { h } from "./dom.js";

const MOST = 40;
const LONGEST = 24;
// The width of a cluster on the screen at which its name is shown, in pixels.
const WIDTH = 24;
const GAP = 4;
const HEIGHT = 18;

// The end of a long name, because labels differ at their ends.
const shorten = (name) => (name.length > LONGEST ? `…${name.slice(1 - LONGEST)}` : name);

// `stage` is the element of the map; `covered` are elements above it that names must not lie under.
export function make(stage, covered) {
  const element = h("div", { class: "names", role: "note" });
  let clusters = [];
  let widths = [];
  let kind = "majority";
  let extent = 1;
  let key = "";
  let loading = null;
  const shown = new Map();

  function width(name) {
    const probe = h("span", { class: "name" }, shorten(name));
    element.append(probe);
    const found = probe.offsetWidth;
    probe.remove();
    return found;
  }

  const overlap = (a, b) => a.left < b.right + GAP && b.left < a.right + GAP && a.top < b.bottom + GAP && b.top < a.bottom + GAP;

  // The names for this view of the map, and where they go: the largest clusters first.
  function draw(view) {
    const places = [];
    if (clusters.length) {
      // The finest level whose clusters are still wide enough on the screen.
      const level = Math.max(0, widths.findLastIndex((share) => share * extent * view.scale >= WIDTH));
      const frame = stage.getBoundingClientRect();
      const taken = covered().filter((other) => !other.hidden && other.offsetWidth).map((other) => {
        const box = other.getBoundingClientRect();
        return { left: box.left - frame.left, right: box.right - frame.left, top: box.top - frame.top, bottom: box.bottom - frame.top };
      });
      const named = new Set();
      for (const cluster of clusters) {
        if (cluster.level !== level) continue;
        if (places.length >= MOST) break;
        const name = cluster[kind];
        const { x, y } = view.screen(cluster.x, cluster.y);
        if (x < 0 || y < 0 || x > view.width || y > view.height || named.has(`${name} ${Math.round(x / 90)} ${Math.round(y / 60)}`)) continue;
        cluster.width ??= width(name);
        const box = { left: x - cluster.width / 2, right: x + cluster.width / 2, top: y - HEIGHT / 2, bottom: y + HEIGHT / 2 };
        if (box.left < 0 || box.right > view.width || taken.some((other) => overlap(box, other))) continue;
        taken.push(box);
        named.add(`${name} ${Math.round(x / 90)} ${Math.round(y / 60)}`);
        places.push({ cluster, name, x, y });
      }
    }
    const wanted = new Set(places.map(({ cluster }) => cluster));
    for (const [cluster, one] of shown) {
      if (wanted.has(cluster)) continue;
      one.remove();
      shown.delete(cluster);
    }
    for (const { cluster, name, x, y } of places) {
      if (!shown.has(cluster)) {
        const one = h("span", { class: "name" }, shorten(name));
        shown.set(cluster, one);
        element.append(one);
      }
      shown.get(cluster).style.transform = `translate(${x.toFixed(1)}px, ${y.toFixed(1)}px) translate(-50%, -50%)`;
    }
    const said = places.map(({ name }) => name);
    element.setAttribute("aria-label", said.length ? `Clusters: ${said.join(", ")}` : "No cluster is named");
  }

  return {
    element,
    draw,
    // Reads the clusters if the choice changed: "" for no names, "majority", "characteristic", or "by:COLUMN".
    async choose(choice, points, view) {
      if (choice === key) return;
      key = choice;
      const { x0, x1, y0, y1 } = points.bounds;
      extent = Math.max(x1 - x0, y1 - y0);
      const mine = (loading = {});
      const by = choice.startsWith("by:") ? choice.slice(3) : undefined;
      const found = choice && (await api.clusters(by).catch(() => null));
      if (mine !== loading) return;
      kind = choice === "characteristic" ? "characteristic" : "majority";
      clusters = (found?.clusters ?? []).map((cluster) => ({ ...cluster }));
      widths = found?.widths ?? [];
      draw(view);
    },
  };
}

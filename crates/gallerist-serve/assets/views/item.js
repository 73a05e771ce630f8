// One large item, next to the query if there is one, and why the two are close: the parts in which they are similar.

import * as actions from "../actions.js";
import * as api from "../api.js";
import * as crop from "../crop.js";
import { button, fraction, h, icon, notice, plural } from "../dom.js";
import * as marks from "../marks.js";
import * as saved from "../saved.js";
import * as session from "../session.js";
import * as state from "../state.js";
import * as tile from "../tile.js";

// The viridis scale at five places. Its lightness increases evenly, so that it can be read without colours.
const SCALE = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];

function shade(value) {
  const at = Math.max(0, Math.min(1, value)) * (SCALE.length - 1);
  const low = Math.min(SCALE.length - 2, Math.floor(at));
  return SCALE[low].map((c, i) => Math.round(c + (SCALE[low + 1][i] - c) * (at - low)));
}

// `low` and `high` are the ends of the scale; they are the same for both images of a pair.
function paint({ width, height, values }, low, high) {
  const small = h("canvas", { width, height });
  const context = small.getContext("2d");
  const pixels = context.createImageData(width, height);
  values.forEach((value, i) => pixels.data.set([...shade((value - low) / (high - low || 1)), 255], 4 * i));
  context.putImageData(pixels, 0, 0);
  const large = h("canvas", { class: "heat", width: width * 32, height: height * 32, "aria-hidden": "true" });
  const target = large.getContext("2d");
  target.imageSmoothingQuality = "high";
  target.drawImage(small, 0, 0, large.width, large.height);
  return large;
}

export function make() {
  const body = h("div", { class: "item-body" });
  const close = button("Close", () => dialog.close(), { class: "quiet" });
  const title = h("h2", { id: "item-title" });
  const dialog = h("dialog", { class: "item", "aria-labelledby": "item-title" }, h("header", {}, title, close), body);
  document.body.append(dialog);
  dialog.addEventListener("close", () => state.get().open && state.set({ open: "" }));
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());

  let shown = "";
  let result = null;
  let abort = new AbortController();

  const figure = (heading, source, item, region) => {
    const image = region ? crop.picture(source, region, heading) : source ? h("img", { src: source, alt: item ? tile.describe(item) : heading }) : h("div", { class: "picture words" }, h("span", {}, item?.path ?? `#${item?.id}`));
    const frame = h("div", { class: "large" }, image);
    return { frame, element: h("figure", {}, h("figcaption", {}, heading), frame) };
  };

  async function open(id) {
    abort.abort();
    abort = new AbortController();
    const { signal } = abort;
    body.replaceChildren(notice("Loading…", null, null, "waiting"));
    title.textContent = `Item ${id}`;
    if (!dialog.open) dialog.showModal();
    let item;
    try {
      item = await api.item(id, signal);
    } catch (error) {
      if (!signal.aborted) body.replaceChildren(notice(error.message, error.hint, null, "error"));
      return;
    }
    if (signal.aborted) return;
    draw(item, signal);
  }

  function draw(item, signal) {
    const s = state.get();
    const { gallery, ranking, files } = session;
    const query = session.hasQuery(s) && ranking.query;
    const asked = s.ids[0];
    result = query ? (ranking.results.find((r) => r.id === item.id) ?? null) : null;
    title.textContent = item.label ?? tile.nameOf(item);

    const own = figure(result ? `Rank ${result.rank}` : "Item", session.pictured(item) ? api.image(item.id) : null, item);
    const figures = [own.element];
    let other = null;
    if (query && asked !== item.id) {
      other = files.length ? figure("Query", files[0].url, null, files[0].region) : figure("Query", session.anyPictures() ? api.image(asked) : null, { id: asked, label: query.label, path: query.name }, session.anyPictures() ? session.regionOf(s, asked) : null);
      figures.unshift(other.element);
    }

    const fact = (name, value) => (value === null || value === undefined || value === "" ? [] : [h("dt", {}, name), h("dd", {}, value)]);
    const facts = h(
      "dl",
      {},
      fact("Label", item.label && h("span", {}, item.label, " ", button("filter by it", () => state.set({ label: [item.label], open: "" }), { class: "quiet" }))),
      result ? fact("Distance", fraction(result.distance, 4)) : [],
      result && result.similarity !== null ? fact("Similarity", fraction(result.similarity, 4)) : [],
      result?.match ? fact("Threshold", result.match.replace("_", " ")) : [],
      result && typeof result.right === "boolean" ? fact("Verdict", result.right ? "same label as the query" : "another label than the query's") : [],
      fact("Others of its label", item.neighbours_same_label === undefined || item.label === null ? null : plural(item.neighbours_same_label, "item")),
      fact("Camera", item.camera && h("span", {}, item.camera, " ", button("filter by it", () => state.set({ camera: [item.camera], open: "" }), { class: "quiet" }))),
      Object.entries(item.columns ?? {}).flatMap(([name, value]) => fact(name, [value].flat().join(", "))),
      fact("Tags", tags(item)),
      fact("Path", item.path),
      fact("Id", item.id),
    );

    const buttons = [button("Search with it", () => actions.search(item), { class: "main" }), button("Add to the query", () => actions.add(item))];
    if (actions.canCrop(item)) buttons.push(button("Search with a part", () => (dialog.close(), actions.cropItem(item))));
    if (result) {
      for (const [name, shape] of [["right", "tick"], ["wrong", "cross"]]) {
        const one = h("button", { type: "button", class: `mark ${name}`, "aria-pressed": String(marks.of(query, item.id) === name), onclick: () => mark(name) }, icon(shape), `Mark ${name}`);
        one.dataset.mark = name;
        buttons.push(one);
      }
    }
    const why = h("div", { class: "why" });
    body.replaceChildren(h("div", { class: "figures" }, figures), h("div", { class: "beside" }, h("div", { class: "buttons" }, buttons), why, facts));
    if (other && gallery.heatmap && asked && s.ids.length === 1 && !files.length && !session.regionOf(s, asked)) heat(why, asked, item.id, other.frame, own.frame, signal);
  }

  // The tags of an item: a click filters by one, another removes it; Enter adds one.
  function tags(item) {
    const element = h("span", { class: "chips" });
    const change = async (name, changes) => {
      await saved.attempt(() => saved.change("tags", name, changes));
      drawTags();
    };
    const name = h("input", { type: "text", "aria-label": "Add a tag", placeholder: "Add a tag", maxlength: "200", autocomplete: "off" });
    name.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || !name.value.trim()) return;
      event.preventDefault();
      change(name.value.trim(), { add: [item.id] }).then(() => ((name.value = ""), name.focus()));
    });
    function drawTags() {
      const chips = saved.tagsOf(item).map((tag) => h("span", { class: "chip" }, h("span", {}, tag), button("filter by it", () => state.set({ saved: `tags:${tag}`, open: "" }), { class: "quiet" }), button("×", () => change(tag, { remove: [item.id] }), { "aria-label": `Remove the tag ${tag}` })));
      element.replaceChildren(...chips, name);
    }
    drawTags();
    return element;
  }

  async function heat(place, queryId, itemId, first, second, signal) {
    const strength = h("input", { type: "range", min: "0", max: "1", step: "0.05", value: "0.55", "aria-label": "Strength of the heat map" });
    place.replaceChildren(h("p", { class: "soft" }, "Comparing the feature maps…"));
    try {
      const answer = await api.heatmap(queryId, itemId, signal);
      const both = [...answer.query.values, ...answer.item.values];
      const [low, high] = [Math.min(...both), Math.max(...both)];
      const layers = [paint(answer.query, low, high), paint(answer.item, low, high)];
      first.append(layers[0]);
      second.append(layers[1]);
      const turn = () => layers.forEach((layer) => (layer.style.opacity = strength.value));
      strength.addEventListener("input", turn);
      turn();
      place.replaceChildren(h("p", {}, h("b", {}, "Why they are close")), h("p", { class: "soft" }, "The colour of a place is the cosine similarity of its features and the mean features of the other image."), h("div", { class: "scale" }, h("span", { title: "least similar" }, fraction(low, 2)), h("span", { class: "viridis", "aria-hidden": "true" }), h("span", { title: "most similar" }, fraction(high, 2))), h("label", { class: "field" }, "Strength", strength));
    } catch (error) {
      if (!signal.aborted) place.replaceChildren(h("p", { class: "soft" }, `No heat map: ${error.message}`));
    }
  }

  function mark(name) {
    const { query } = session.ranking;
    if (!result || !query) return;
    const now = marks.toggle(query, result, name);
    dialog.querySelectorAll("[data-mark]").forEach((one) => one.setAttribute("aria-pressed", String(now === one.dataset.mark)));
  }

  // Moves to the next or previous result without closing.
  function step(by) {
    const list = session.ranking.results ?? [];
    const at = list.findIndex((r) => r.id === state.get().open);
    const next = at < 0 ? undefined : list[at + by];
    if (next) state.set({ open: next.id }, { quiet: true });
  }

  dialog.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input")) return;
    if (event.key === "ArrowRight") step(1);
    else if (event.key === "ArrowLeft") step(-1);
    else if (event.key === "r") mark("right");
    else if (event.key === "w") mark("wrong");
    else return;
    event.preventDefault();
  });

  session.onRanking(({ status }) => status === "ready" && dialog.open && shown && open(shown));

  return {
    show(s) {
      if (s.open === shown) return;
      shown = s.open;
      if (shown && /^\d{1,20}$/.test(shown)) open(shown);
      else if (dialog.open) dialog.close();
    },
  };
}

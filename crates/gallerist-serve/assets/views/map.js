// The map: points that are close have similar embeddings, as far as a plane can show it. The query, its results and the
// selection are highlighted; a lasso makes a selection.

import * as actions from "../actions.js";
import * as api from "../api.js";
import { Canvas, HOVER, HUES, QUERY, RESULT, RIGHT, WRONG } from "../canvas.js";
import { cut, h, notice, number, plural, tool } from "../dom.js";
import * as marks from "../marks.js";
import * as nameLayer from "../names.js";
import * as selection from "../selection.js";
import * as session from "../session.js";
import * as state from "../state.js";

// With at most so many visible points, they are shown as pictures.
const PICTURES = 70;
const LEGEND = 10;
const REACH = 10;

export function make() {
  const below = h("canvas", { class: "points", "aria-hidden": "true" });
  const above = h("canvas", { class: "marks-layer", "aria-hidden": "true" });
  const surface = h("div", { class: "surface", tabindex: "0", role: "application", "aria-label": "Map of the embeddings. Arrow keys move, plus and minus zoom, 0 shows all, v selects the visible items, Escape clears the selection." });
  const pictures = h("div", { class: "pictures", "aria-hidden": "true" });
  const outline = svg("svg", "outline");
  const region = svg("polygon", "region");
  outline.append(region);
  const card = h("div", { class: "card", hidden: true });
  const legend = h("div", { class: "legend" });
  const facts = h("span", { class: "facts" });
  const lassoTool = tool("lasso", "Lasso: select a region (l, or drag with Shift)", () => lasso(!lassoing), { "aria-pressed": "false" });
  const tools = h(
    "div",
    { class: "map-tools", role: "toolbar", "aria-label": "Map" },
    tool("plus", "Zoom in (+)", () => move(() => view.zoom(1.6))),
    tool("minus", "Zoom out (−)", () => move(() => view.zoom(1 / 1.6))),
    tool("fit", "Show all (0)", () => move(() => view.fit())),
    lassoTool,
    tool("frame", "Select the visible items (v)", selectSight),
  );
  const choice = nameChoice();
  const stage = h("div", { class: "stage" }, below, pictures, outline, above);
  const names = nameLayer.make(stage, () => [tools, legend]);
  stage.append(names.element, surface, card, tools, legend);
  const message = h("div", {});
  const element = h("section", { class: "view map", "aria-label": "Map" }, h("div", { class: "bar" }, facts, choice), message, stage);

  let view = null;
  let points = null;
  let lassoing = false;
  let placed = false;
  // The place from the address that the map shows.
  let position = "";
  let hovered = -1;

  // ---- Reading

  let reading = false;
  async function read() {
    if (points || reading) return;
    reading = true;
    stage.hidden = true;
    message.replaceChildren(notice("Reading the map…", null, null, "waiting"));
    try {
      await session.calm();
      const answer = await session.readPoints();
      if (answer.state !== "ready") {
        message.replaceChildren(answer.state === "computing" ? notice("The map is being computed", "It opens when it is ready.", null, "waiting") : notice("This gallery has no map", "The server was started without one."));
        return;
      }
      message.replaceChildren();
      stage.hidden = false;
      points = answer.points;
      facts.textContent = `${plural(points.count, "point")} by ${answer.method}`;
      view = new Canvas(stage, below, above, points, moved);
      view.restored = link;
      view.resized = () => (placed && state.get().at) || place();
      link();
      // Functions that need the points to know the selection.
      if (state.get().lasso) document.dispatchEvent(new CustomEvent("selection-known"));
    } catch (error) {
      stage.hidden = true;
      message.replaceChildren(notice(`The map cannot be shown: ${error.message}`, error.hint, null, "error"));
    } finally {
      reading = false;
    }
  }

  function place() {
    placed = true;
    position = state.get().at;
    const [x, y, zoom] = state.get().at.split(",").map(Number);
    if ([x, y, zoom].every(Number.isFinite) && zoom > 0) view.look({ x, y }, view.fitting() * zoom);
    else view.fit();
  }

  // ---- Highlighted points

  // The results, from the last to the first, and the query above them.
  function standing(s) {
    const found = [];
    const { ranking } = session;
    if (session.hasQuery(s) && ranking.results) {
      for (const result of [...ranking.results].reverse()) {
        const right = marks.verdict(ranking.query, result);
        found.push({ index: points.index(result.id), kind: right === true ? RIGHT : right === false ? WRONG : RESULT });
      }
    }
    for (const id of s.ids) found.push({ index: points.index(id), kind: QUERY });
    return found.filter((mark) => mark.index >= 0);
  }
  const withHover = (found) => (hovered >= 0 ? [...found, { index: hovered, kind: HOVER }] : found);

  // What names the clusters: the labels unless the user chose otherwise.
  const named = (s) => (s.names === "none" || (!s.names && !session.gallery.labelled) ? "" : s.names || "majority");

  function nameChoice() {
    const { labelled, columns = [] } = session.gallery;
    const texts = columns.filter(({ kind }) => kind !== "number");
    if (!labelled && !texts.length) return null;
    const choices = [["none", "No names"], ...(labelled ? [["majority", "Names: most frequent label"], ["characteristic", "Names: most characteristic label"]] : []), ...texts.map(({ name }) => [`by:${name}`, `Names: ${name}`])];
    return h("select", { "aria-label": "Names of clusters", onchange: (event) => state.set({ names: event.target.value }) }, choices.map(([value, text]) => h("option", { value }, text)));
  }

  function link() {
    if (!view) return;
    const s = state.get();
    if (choice) choice.value = named(s) || "none";
    names.choose(named(s), points, view);
    let mask = null;
    if (selection.exists(s)) {
      mask = s.lasso ? selection.region(s).mask.slice() : new Uint8Array(points.count);
      if (s.sel.length) for (const i of s.sel.map((id) => points.index(id))) if (i >= 0) mask[i] = 1;
      if (s.class.length) {
        const wanted = new Set([...points.labels.keys()].filter((number) => selection.isOf(s.class, points.labels[number])));
        for (let i = 0; i < points.count; i++) if (wanted.has(points.label[i])) mask[i] = 1;
      }
    }
    const found = standing(s);
    if (found.length) mask ??= new Uint8Array(points.count);
    view.choose(mask);
    view.mark(withHover(found));
    region.setAttribute("visibility", s.lasso ? "visible" : "hidden");
    drawLegend(s, mask, found);
    names.draw(view);
  }

  function drawLegend(s, mask, found) {
    const most = actions.narrow.matches ? 4 : LEGEND;
    const counts = new Uint32Array(points.labels.length);
    if (selection.exists(s)) for (let i = 0; i < points.count; i++) counts[points.label[i]] += mask[i];
    else found.forEach((mark) => counts[points.label[mark.index]]++);
    const rows = [...counts.entries()].filter(([, n]) => n > 0).sort((a, b) => b[1] - a[1]);
    const shown = rows.slice(0, most).map(([label, n]) => {
      const swatch = h("i", { class: "swatch" });
      swatch.style.background = HUES[label % HUES.length];
      const select = () => state.set({ ...selection.NONE, class: [points.labels[label]] });
      return h("button", { type: "button", class: "entry", title: "Select this label", onclick: select }, swatch, cut(points.labels[label], { class: "label" }), h("span", { class: "soft" }, number(n)));
    });
    const key = (kind, text) => h("span", { class: `key key-${kind}` }, h("b", { "aria-hidden": "true" }, { query: "◉", right: "◆", wrong: "✕", result: "●" }[kind]), text);
    const kinds = new Set(found.map((mark) => mark.kind));
    const keys = [[QUERY, "query"], [RIGHT, "right"], [WRONG, "wrong"], [RESULT, "result"]].filter(([kind]) => kinds.has(kind)).map(([, name]) => key(name, name));
    const more = rows.length > most ? h("p", { class: "soft" }, `and ${plural(rows.length - most, "label")}`) : null;
    const words = points.labels.length > HUES.length ? `${number(points.labels.length)} labels share ${HUES.length} colours` : null;
    legend.replaceChildren(...[keys.length ? h("p", { class: "kinds" }, keys) : null, ...shown, more, words && h("p", { class: "soft" }, words)].filter(Boolean));
  }

  function setHovered(index) {
    if (index === hovered || !view) return;
    hovered = index;
    view.mark(withHover(standing(state.get())));
  }

  document.addEventListener("hover-item", (event) => {
    if (points && element.isConnected) setHovered(event.detail === null ? -1 : points.index(event.detail));
  });

  // ---- Elements above the points that move with them

  const thumbs = new Map();
  function moved() {
    const s = state.get();
    names.draw(view);
    if (s.lasso) region.setAttribute("points", selection.polygon(s.lasso).map(([x, y]) => screenPair(x, y)).join(" "));
    const a = view.world({ x: 0, y: view.height });
    const b = view.world({ x: view.width, y: 0 });
    const seen = [];
    if (session.anyPictures()) points.within(a.x, a.y, b.x, b.y, (i) => seen.push(i) <= PICTURES);
    const show = seen.length <= PICTURES ? new Set(seen) : new Set();
    for (const [i, image] of thumbs) {
      if (show.has(i)) continue;
      image.remove();
      thumbs.delete(i);
    }
    for (const i of show) {
      if (!thumbs.has(i)) {
        const image = h("img", { alt: "", draggable: false });
        image.src = api.thumbnail(points.id(i), 64);
        thumbs.set(i, image);
        pictures.append(image);
      }
      const { x, y } = view.screen(points.x[i], points.y[i]);
      thumbs.get(i).style.transform = `translate(${x.toFixed(1)}px, ${y.toFixed(1)}px) translate(-50%, -50%)`;
    }
  }

  const screenPair = (x, y) => {
    const at = view.screen(x, y);
    return `${at.x.toFixed(1)},${at.y.toFixed(1)}`;
  };

  // ---- Movement

  let resting = 0;
  function move(change) {
    if (!view) return;
    change();
    card.hidden = true;
    clearTimeout(resting);
    resting = setTimeout(() => {
      const { x, y } = view.centre;
      const zoom = view.scale / view.fitting();
      const standing = Math.abs(zoom - 1) < 1e-3;
      position = standing ? "" : [x, y, zoom].map((v) => Number(v.toPrecision(5))).join(",");
      state.set({ at: position }, { quiet: true });
    }, 300);
  }

  const at = (event) => {
    const box = surface.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };
  const pointAt = (place, reach = REACH) => {
    const world = view.world(place);
    return points.nearest(world.x, world.y, reach / view.scale);
  };

  const fingers = new Map();
  let drawn = null;
  let travelled = 0;

  surface.addEventListener("pointerdown", (event) => {
    if (!view || event.button > 0) return;
    surface.setPointerCapture(event.pointerId);
    fingers.set(event.pointerId, at(event));
    travelled = fingers.size > 1 ? Infinity : 0;
    drawn = (event.shiftKey || lassoing) && fingers.size === 1 ? [at(event)] : null;
    card.hidden = true;
  });
  surface.addEventListener("pointermove", (event) => {
    if (!view) return;
    const now = at(event);
    const before = fingers.get(event.pointerId);
    if (!before) return hover(now, event);
    travelled += Math.hypot(now.x - before.x, now.y - before.y);
    if (drawn) {
      // The browser delivers one event per frame, which contains the events between.
      for (const corner of [...(event.getCoalescedEvents?.() ?? []), event].map(at)) {
        const last = drawn.at(-1);
        if (Math.hypot(corner.x - last.x, corner.y - last.y) > 5) drawn.push(corner);
      }
      region.setAttribute("visibility", "visible");
      region.setAttribute("points", drawn.map((p) => `${p.x},${p.y}`).join(" "));
    } else if (fingers.size === 1) {
      if (travelled > 4) move(() => view.pan(now.x - before.x, now.y - before.y));
    } else {
      const other = [...fingers].find(([id]) => id !== event.pointerId)[1];
      const spread = (p) => Math.max(20, Math.hypot(p.x - other.x, p.y - other.y));
      const middle = { x: (now.x + other.x) / 2, y: (now.y + other.y) / 2 };
      move(() => {
        view.pan((now.x - before.x) / 2, (now.y - before.y) / 2);
        view.zoom(spread(now) / spread(before), middle);
      });
    }
    if (!drawn && fingers.size === 1 && travelled <= 4) return;
    fingers.set(event.pointerId, now);
  });
  const lifted = (event) => {
    const there = fingers.delete(event.pointerId);
    if (!there || !view) return;
    if (drawn) {
      const corners = thin(drawn, 60).map((p) => view.world(p)).map((p) => [p.x, p.y]);
      drawn = null;
      lasso(false);
      if (corners.length > 2 && travelled > 20) state.set({ ...selection.NONE, lasso: selection.format(corners), side: "selection" });
      else link();
    } else if (event.type === "pointerup" && travelled <= 4) {
      const index = pointAt(at(event), event.pointerType === "mouse" ? REACH : 2 * REACH);
      if (index >= 0) {
        const item = { id: points.id(index), label: points.labelOf(index) };
        if (event.ctrlKey || event.metaKey) selection.toggle(item);
        else actions.search(item);
      }
    }
  };
  surface.addEventListener("pointerup", lifted);
  surface.addEventListener("pointercancel", lifted);
  surface.addEventListener("pointerleave", () => {
    card.hidden = true;
    setHovered(-1);
  });
  surface.addEventListener("wheel", (event) => {
    if (!view) return;
    event.preventDefault();
    const pixels = event.deltaY * (event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? 400 : 1);
    move(() => view.zoom(Math.exp(-Math.max(-300, Math.min(300, pixels)) / (event.ctrlKey ? 100 : 400)), at(event)));
  }, { passive: false });
  surface.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !view) return;
    const step = 80;
    const keys = {
      ArrowLeft: () => move(() => view.pan(step, 0)),
      ArrowRight: () => move(() => view.pan(-step, 0)),
      ArrowUp: () => move(() => view.pan(0, step)),
      ArrowDown: () => move(() => view.pan(0, -step)),
      "+": () => move(() => view.zoom(1.4)),
      "=": () => move(() => view.zoom(1.4)),
      "-": () => move(() => view.zoom(1 / 1.4)),
      0: () => move(() => view.fit()),
      l: () => lasso(!lassoing),
      v: selectSight,
    };
    if (!keys[event.key]) return;
    keys[event.key]();
    event.preventDefault();
  });

  function lasso(on) {
    lassoing = on;
    lassoTool.setAttribute("aria-pressed", String(on));
    surface.classList.toggle("lassoing", on);
  }

  function selectSight() {
    if (!view) return;
    const { width: w, height: t } = view;
    const corners = [[0, 0], [w, 0], [w, t], [0, t]].map(([x, y]) => view.world({ x, y })).map((p) => [p.x, p.y]);
    state.set({ ...selection.NONE, lasso: selection.format(corners), side: "selection" });
  }

  function hover(place, event) {
    if (event.pointerType === "touch") return;
    const index = pointAt(place);
    surface.classList.toggle("pointing", index >= 0);
    setHovered(index);
    if (index < 0) return void (card.hidden = true);
    const id = points.id(index);
    if (card.dataset.id !== id || card.hidden) {
      card.dataset.id = id;
      const image = session.anyPictures() ? h("img", { alt: "", src: api.thumbnail(id) }) : null;
      card.replaceChildren(...[image, cut(points.labelOf(index) ?? `item ${id}`, { class: "label" })].filter(Boolean));
    }
    card.hidden = false;
    const left = place.x + 196 > view.width ? place.x - 190 : place.x + 16;
    const top = Math.max(4, Math.min(view.height - card.offsetHeight - 4, place.y - 40));
    card.style.transform = `translate(${Math.max(4, left)}px, ${top}px)`;
  }

  session.onRanking(() => element.isConnected && link());
  marks.subscribe(() => element.isConnected && link());

  return {
    element,
    focus: () => surface.focus({ preventScroll: true }),
    show(s) {
      read();
      link();
      if (view && placed && s.at !== position) place();
    },
  };
}

function svg(tag, name) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  element.setAttribute("class", name);
  return element;
}

// At most `most` of the drawn corners.
function thin(corners, most) {
  const step = Math.max(1, Math.ceil(corners.length / most));
  return corners.filter((_, i) => i % step === 0);
}

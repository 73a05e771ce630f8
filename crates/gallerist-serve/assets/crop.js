// A region of an image to search with: drawn, moved and resized by mouse, finger and keyboard. A region is
// `[left, top, width, height]` in fractions of the upright image.

import { announce, button, h, notice } from "./dom.js";

const WHOLE = [0, 0, 1, 1];
// The smallest side of a region that can be drawn, and the step of the arrow keys.
const LEAST = 0.01;
const STEP = 0.01;
// Below this movement in pixels, a press outside the region is a slip and draws nothing.
const SLIP = 4;
const EDGES = ["nw", "n", "ne", "e", "se", "s", "sw", "w"];

const clamp = (value, low, high) => Math.max(low, Math.min(high, value));
const shorten = (value) => Number(value.toFixed(5));

export const isWhole = (region) => !region || region.every((value, i) => Math.abs(value - WHOLE[i]) < 1e-4);
// The region with its edges rounded. If left and width were rounded separately, the right edge could be beyond the image.
export function rounded([left, top, width, height]) {
  const [l, t, r, b] = [left, top, left + width, top + height].map(shorten);
  return [l, t, shorten(r - l), shorten(b - t)];
}
export const format = (region) => rounded(region).join(",");

export function parse(text) {
  const region = (text ?? "").split(",").map(Number);
  const [left, top, width, height] = region;
  const good = region.length === 4 && region.every(Number.isFinite) && width > 0 && height > 0 && left >= 0 && top >= 0 && left + width <= 1 + 1e-6 && top + height <= 1 + 1e-6;
  return good ? region : null;
}

// The region of an image as a picture of its own.
export function picture(source, region, name) {
  const canvas = h("canvas", { role: "img", "aria-label": name, title: name, width: 8, height: 8 });
  const image = h("img", { alt: "" });
  image.addEventListener("load", () => {
    const [left, top, width, height] = region;
    const [w, t] = [Math.max(1, width * image.naturalWidth), Math.max(1, height * image.naturalHeight)];
    const scale = 640 / Math.max(w, t);
    [canvas.width, canvas.height] = [Math.max(1, Math.round(w * scale)), Math.max(1, Math.round(t * scale))];
    canvas.getContext("2d").drawImage(image, left * image.naturalWidth, top * image.naturalHeight, w, t, 0, 0, canvas.width, canvas.height);
  });
  image.src = source;
  return canvas;
}

// The region after the edges named by `edges` (of "n", "e", "s", "w") moved by fractions; without edges all of it moves.
export function changed([left, top, width, height], edges, x, y) {
  if (!edges) return [clamp(left + x, 0, 1 - width), clamp(top + y, 0, 1 - height), width, height];
  let [right, bottom] = [left + width, top + height];
  if (edges.includes("w")) left = clamp(left + x, 0, right - LEAST);
  if (edges.includes("e")) right = clamp(right + x, left + LEAST, 1);
  if (edges.includes("n")) top = clamp(top + y, 0, bottom - LEAST);
  if (edges.includes("s")) bottom = clamp(bottom + y, top + LEAST, 1);
  return [left, top, right - left, bottom - top];
}

let dialog;

// Lets the user choose a region of the image at `source`. `done` gets the region, or null for the whole image.
export function open({ source, name, region, done }) {
  let now = region ?? WHOLE;
  const image = h("img", { alt: name, draggable: false });
  const box = h("div", { class: "crop-box", tabindex: "0", role: "application", "aria-roledescription": "region" }, EDGES.map((edges) => h("i", { class: `crop-${edges}`, "data-edges": edges, "aria-hidden": "true" })));
  const stage = h("div", { class: "crop-stage" }, image, box);
  const facts = h("span", { class: "soft" });
  const search = button("Search with this region", () => finish(now), { class: "main" });
  const body = h("div", { class: "crop-body" }, stage, h("div", { class: "buttons" }, search, button("Whole image", () => finish(WHOLE)), facts), h("p", { class: "soft" }, "Drag on the picture to draw a region; drag the region or its edges to change it. Keys: the arrows move it, with Shift they resize it, Enter searches."));

  function draw(next = now) {
    now = next;
    const [left, top, width, height] = now;
    Object.assign(box.style, { left: `${100 * left}%`, top: `${100 * top}%`, width: `${100 * width}%`, height: `${100 * height}%` });
    const pixels = image.naturalWidth ? `${Math.round(width * image.naturalWidth)} × ${Math.round(height * image.naturalHeight)} pixels` : "";
    facts.textContent = isWhole(now) ? "the whole image" : pixels;
    const percent = (value) => `${Math.round(100 * value)} %`;
    box.setAttribute("aria-label", `Region: from ${percent(left)} of the width and ${percent(top)} of the height, ${percent(width)} wide, ${percent(height)} high`);
  }

  function finish(chosen) {
    dialog.close();
    done(isWhole(chosen) ? null : rounded(chosen));
  }

  image.addEventListener("load", () => {
    const ratio = image.naturalWidth / image.naturalHeight;
    stage.style.aspectRatio = String(ratio);
    stage.style.width = `min(100%, calc(60dvh * ${ratio}))`;
    draw();
  });
  image.addEventListener("error", () => stage.replaceWith(notice("This browser cannot show the image", "Save it as JPEG or PNG to choose a region of it.", null, "error")));

  const at = (event) => {
    const frame = stage.getBoundingClientRect();
    return [(event.clientX - frame.left) / frame.width, (event.clientY - frame.top) / frame.height];
  };
  let drag = null;
  stage.addEventListener("pointerdown", (event) => {
    if (event.button > 0 || drag) return;
    event.preventDefault();
    stage.setPointerCapture(event.pointerId);
    const edges = event.target.dataset.edges;
    const inside = event.target === box && !isWhole(now);
    drag = { pointer: event.pointerId, from: at(event), start: now, edges, draws: !edges && !inside, x: event.clientX, y: event.clientY, moved: false };
    box.focus({ preventScroll: true });
  });
  stage.addEventListener("pointermove", (event) => {
    if (event.pointerId !== drag?.pointer) return;
    if (!drag.moved && Math.hypot(event.clientX - drag.x, event.clientY - drag.y) < SLIP) return;
    drag.moved = true;
    const [x, y] = at(event).map((value) => clamp(value, 0, 1));
    const [a, b] = drag.from.map((value) => clamp(value, 0, 1));
    if (!drag.draws) return draw(changed(drag.start, drag.edges, x - drag.from[0], y - drag.from[1]));
    const [width, height] = [Math.max(LEAST, Math.abs(x - a)), Math.max(LEAST, Math.abs(y - b))];
    draw([clamp(Math.min(x, a), 0, 1 - width), clamp(Math.min(y, b), 0, 1 - height), width, height]);
  });
  const lifted = (event) => {
    if (event.pointerId !== drag?.pointer) return;
    drag = null;
    announce(facts.textContent);
  };
  stage.addEventListener("pointerup", lifted);
  stage.addEventListener("pointercancel", lifted);
  box.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const move = { ArrowLeft: [-STEP, 0], ArrowRight: [STEP, 0], ArrowUp: [0, -STEP], ArrowDown: [0, STEP] }[event.key];
    if (event.key === "Enter") finish(now);
    else if (move) draw(changed(now, event.shiftKey ? "es" : "", ...move));
    else return;
    event.preventDefault();
    event.stopPropagation();
  });

  if (!dialog) {
    dialog = h("dialog", { class: "crop", "aria-labelledby": "crop-title" });
    dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
    document.body.append(dialog);
  }
  dialog.replaceChildren(h("header", {}, h("h2", { id: "crop-title" }, "Search with a part of the picture"), button("Close", () => dialog.close(), { class: "quiet" })), body);
  draw();
  image.src = source;
  dialog.showModal();
  box.focus();
}

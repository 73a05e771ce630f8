// Creates elements. This is the only place that does: text is inserted as text, never as markup.

export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined) continue;
    if (name === "class") element.className = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && typeof value !== "string") element[name] = value;
    else if (value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((c) => c !== null && c !== undefined && c !== false));
  return element;
}

const SHAPES = {
  tick: "M2.5 8.5 6 12l7.5-8",
  cross: "M3.5 3.5l9 9M12.5 3.5l-9 9",
  plus: "M8 2.5v11M2.5 8h11",
  minus: "M2.5 8h11",
  open: "M9.5 2.5h4v4M13.5 2.5l-5 5M6.5 13.5h-4v-4M2.5 13.5l5-5",
  image: "M2 3h12v10H2zM2 11l3.5-4 3 3 2-2L14 11M10.5 6h.01",
  lasso: "M8 3c3.6 0 6 1.5 6 3.7S11.6 10.4 8 10.4 2 9 2 6.7 4.4 3 8 3zM5 10c0 1.5-.5 2.5-1.5 3.5",
  fit: "M2.5 6V2.5H6M10 2.5h3.5V6M13.5 10v3.5H10M6 13.5H2.5V10",
  crop: "M5 1.5V11h9.5M1.5 5H11v9.5",
  frame: "M3 5.5V3h2.5M7.5 3h1M10.5 3H13v2.5M13 7.5v1M13 10.5V13h-2.5M8.5 13h-1M5.5 13H3v-2.5M3 8.5v-1",
};

export function icon(name) {
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  svg.setAttribute("viewBox", "0 0 16 16");
  svg.setAttribute("aria-hidden", "true");
  svg.setAttribute("class", "icon");
  const path = document.createElementNS(space, "path");
  path.setAttribute("d", SHAPES[name]);
  svg.append(path);
  return svg;
}

export const button = (text, onclick, properties = {}) => h("button", { type: "button", onclick, ...properties }, text);

// A button with an icon. Its words are its accessible name and its tooltip.
export const tool = (shape, words, onclick, properties = {}) =>
  h("button", { type: "button", class: "tool", title: words, "aria-label": words, onclick, ...properties }, icon(shape));

// A text of one line. If it is too long, its beginning is cut, because labels and paths differ at their ends. The tooltip
// has the whole text.
export const cut = (text, properties = {}) => h("span", { title: text, ...properties, class: `cut ${properties.class ?? ""}`.trim() }, h("bdi", {}, text));

export const number = (value) => Number(value).toLocaleString("en");
export const fraction = (value, digits = 3) => (Number.isFinite(value) ? value.toFixed(digits).replace(/^(-?)0\./, "$1.") : "–");
export const change = (value) => `${value > 0 ? "▲ +" : value < 0 ? "▼ −" : "= "}${fraction(Math.abs(value))}`;
export const plural = (count, one, many = one + "s") => `${number(count)} ${count === 1 ? one : many}`;

// A short name for a path: the file name, or the folder if the file name is the same for every run.
export function short(path) {
  const parts = (path ?? "").split("/").filter(Boolean);
  return (parts.at(-1) === "embeddings.safetensors" && parts.at(-2)) || parts.at(-1) || "";
}

export function milliseconds(ms) {
  if (!Number.isFinite(ms)) return "";
  return ms < 10 ? `${ms.toFixed(1)} ms` : ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`;
}

// Replaces the children of an element. If a button had the focus, the new button with the same words gets it.
export function replace(parent, ...children) {
  const focused = parent.contains(document.activeElement) ? document.activeElement : null;
  const words = focused && (focused.getAttribute("aria-label") ?? focused.textContent);
  parent.replaceChildren(...children.flat().filter(Boolean));
  if (words) [...parent.querySelectorAll("button")].find((one) => (one.getAttribute("aria-label") ?? one.textContent) === words)?.focus();
}

// The content of an empty view: a sentence, a hint, and optionally a button.
export function notice(title, text, action, kind = "empty") {
  return h("div", { class: `notice ${kind}`, role: kind === "error" ? "alert" : null }, h("p", { class: "title" }, title), text && h("p", {}, text), action);
}

// Whether the last input came from the keyboard: then the focus moves to the result of the action.
export let byKeyboard = false;
addEventListener("keydown", () => (byKeyboard = true), true);
addEventListener("pointerdown", () => (byKeyboard = false), true);

let live;
export function announce(text) {
  live ??= document.getElementById("live");
  live.textContent = text;
}

let timer;
export function toast(text) {
  const element = document.getElementById("toast");
  element.textContent = text;
  element.hidden = false;
  clearTimeout(timer);
  timer = setTimeout(() => (element.hidden = true), 4000);
}

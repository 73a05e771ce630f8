import * as actions from "./actions.js";
import * as api from "./api.js";
import { announce, button, h, icon, notice, replace, short, toast } from "./dom.js";
import { Grid } from "./grid.js";
import * as marks from "./marks.js";
import * as picked from "./picked.js";
import * as querybar from "./querybar.js";
import * as saved from "./saved.js";
import * as savedlists from "./savedlists.js";
import * as selection from "./selection.js";
import * as session from "./session.js";
import * as state from "./state.js";
import * as tile from "./tile.js";
import * as confusions from "./views/confusions.js";
import * as failures from "./views/failures.js";
import * as gallery from "./views/gallery.js";
import * as item from "./views/item.js";
import * as map from "./views/map.js";
import * as pairs from "./views/pairs.js";
import * as ranked from "./views/ranked.js";

const MAKERS = {
  gallery: gallery.make,
  ranked: ranked.make,
  map: map.make,
  failures: () => failures.make("failures"),
  confusions: confusions.make,
  duplicates: () => pairs.make("duplicates"),
  leaks: () => pairs.make("leaks"),
  compare: () => failures.make("compare"),
  selection: selected,
};
const made = {};
const view = (name) => (made[name] ??= MAKERS[name]());

const ANALYSES = { failures: "Queries", confusions: "Confused classes", duplicates: "Near-duplicates", leaks: "Leaks" };
const main = document.getElementById("main");
const side = document.getElementById("side");
const tabs = document.getElementById("tabs");
const help = document.getElementById("help");
let bar;
let picker;
let details;

// ---- The selection as a grid

function selected() {
  const facts = h("span", { class: "facts" });
  const grid = new Grid("Selection", { render: (one) => tile.tile(one), update: (cell, one) => tile.update(cell, one), enter: tile.enter, key: tile.key, empty: () => notice("Nothing is selected", "Draw a region on the map, choose a label in its legend, or press Space on an image.") });
  const element = h("section", { class: "view", "aria-label": "Selection" }, h("div", { class: "bar" }, facts, button("Clear", selection.clear, { class: "quiet" })), grid.element);
  let shown = null;
  return {
    element,
    grid,
    async show(s) {
      const wanted = JSON.stringify([s.sel, s.class, s.lasso, Boolean(session.points)]);
      if (wanted === shown) return grid.refresh();
      shown = wanted;
      if (s.lasso && !session.points) await session.readPoints().catch(() => null);
      await grid.show(selection.source(s));
      facts.textContent = selection.exists(s) ? selection.describe(s, grid.total) : "";
      if (selection.exists(s)) announce(facts.textContent);
    },
  };
}

// ---- The views, and which one the side pane shows

const computed = (name) => name in ANALYSES || name === "compare";

function tabsOf() {
  const { gallery: g } = session;
  const names = [["gallery", "Gallery"], ["ranked", "Ranked list"]];
  if (g.map !== "none") names.push(["map", "Map"]);
  if (g.labelled || g.failures !== "none") names.push(["failures", "Failures"]);
  if (g.compare) names.push(["compare", "Two models"]);
  return names;
}

function analysesOf() {
  const { gallery: g } = session;
  return Object.entries(ANALYSES).filter(([name]) => (name === "leaks" ? g.training : name === "duplicates" ? true : g.labelled));
}

function sideView(s) {
  if (actions.narrow.matches && s.view !== "map") return "none";
  const asked = { ranked: session.hasQuery(s), selection: true, map: session.gallery.map !== "none", none: true };
  if (s.side && s.side !== s.view && asked[s.side]) return s.side;
  if (s.view === "map") return session.hasQuery(s) ? "ranked" : selection.exists(s) ? "selection" : "none";
  if (s.view === "ranked") return session.gallery.map === "ready" && session.hasQuery(s) && innerWidth > 1100 ? "map" : "none";
  if (computed(s.view)) return session.hasQuery(s) ? "ranked" : "none";
  return "none";
}

function drawTabs(s) {
  const current = s.view in ANALYSES ? "failures" : s.view;
  replace(tabs, tabsOf().map(([name, text]) => button(text, () => state.set({ view: name, sort: "" }), { "aria-current": name === current ? "page" : null })));
  tabs.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
}

function drawSide(s, name) {
  const choices = [["ranked", "Ranked list", session.hasQuery(s)], ["selection", "Selection", selection.exists(s)], ["map", "Map", session.gallery.map !== "none"]];
  const buttons = choices.filter(([value, , there]) => there && value !== s.view).map(([value, text]) => button(text, () => state.set({ side: value }), { "aria-pressed": String(value === name) }));
  const close = h("button", { type: "button", class: "tool", title: "Close", "aria-label": "Close this pane", onclick: () => state.set({ side: "none" }) }, icon("cross"));
  return [h("span", { class: "switch", role: "group", "aria-label": "Side pane" }, buttons), close];
}

// The text of a view while the server computes its content in the background.
function waiting(name) {
  const { gallery: g } = session;
  if (!computed(name)) return null;
  if (g.failures === "computing") return notice("The server is searching the gallery with every item", "The results open when it is done.", null, "waiting");
  if ((g.failures === "ready" && g.labelled) || name === "duplicates" || name === "leaks") return null;
  return notice("There is nothing to show here", g.labelled ? "The gallery is too large for the server to analyse it automatically, or cannot be measured: the messages of the server have the reason." : "The gallery has no labels, so results cannot be right or wrong.");
}

let placed = { view: null, side: null };

function place(s) {
  const known = MAKERS[s.view] && s.view !== "selection" ? s.view : "gallery";
  const name = known === "failures" && !session.gallery.labelled ? "duplicates" : known;
  const next = sideView({ ...s, view: name });
  const wait = waiting(name);
  const children = [];
  if (name in ANALYSES) {
    const choices = analysesOf().map(([value, text]) => button(text, () => state.set({ view: value, sort: "" }), { "aria-current": value === name ? "page" : null }));
    children.push(h("nav", { class: "subtabs", "aria-label": "Analyses" }, choices));
  }
  children.push(wait ?? view(name).element);
  const stays = placed.view === name && placed.wait === Boolean(wait);
  if (!stays || !main.contains(children.at(-1)) || wait) replace(main, children);
  if (next === "none") {
    side.replaceChildren();
  } else if (placed.side !== next || !side.contains(view(next).element)) {
    replace(side, h("div", { class: "side-bar" }, drawSide(s, next)), view(next).element);
  } else {
    replace(side.firstChild, drawSide(s, next));
  }
  side.hidden = next === "none";
  document.body.dataset.view = name;
  document.body.dataset.side = next;
  if (!wait) view(name).show(s);
  if (next !== "none") view(next).show(s);
  if (placed.view !== name) document.title = `${tabsOf().find(([t]) => t === name)?.[1] ?? ANALYSES[name] ?? ""} · ${title()}`;
  placed = { view: name, side: next, wait: Boolean(wait) };
}

function show(s) {
  // The back button may lead to another gallery, whose facts the views do not have.
  if (s.gallery !== opened) return location.reload();
  // The back button may lead to a query without the uploaded image.
  if (session.files.length && !s.upload) session.setFiles([]);
  session.follow(s);
  drawTabs(s);
  bar.show(s);
  picker.show(s);
  place(s);
  details.show(s);
}

// ---- Keys, dropped and pasted files

const dropping = document.getElementById("drop");
let depth = 0;
const carries = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");

function listen() {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.matches("input, select, textarea") || document.querySelector("dialog[open]")) return;
    const s = state.get();
    const names = tabsOf().map(([name]) => name);
    const grid = view(placed.view ?? "gallery").grid;
    if (event.key === "/") bar.focus();
    else if (event.key === "?") help.showModal();
    else if (made.ranked?.key(event)) void 0;
    else if (event.key === "c" && session.hasQuery(s)) bar.crop();
    else if (event.key === "Escape" && selection.picking && !selection.exists(s)) picking(false);
    else if (event.key === "Escape") selection.exists(s) ? selection.clear() : session.hasQuery(s) ? actions.clear() : null;
    else if (/^[1-9]$/.test(event.key) && names[event.key - 1]) {
      state.set({ view: names[event.key - 1], sort: "" });
      // The focus leaves the tabs, so that Enter acts on the item that the arrow keys select.
      main.focus();
      view(placed.view).focus?.();
    } else if (/^Arrow/.test(event.key) && grid && !event.target.closest("[role=grid], [role=application], [role=toolbar], .legend")) grid.focus();
    else return;
    event.preventDefault();
  });

  addEventListener("dragenter", (event) => {
    if (!carries(event)) return;
    event.preventDefault();
    depth++;
    dropping.hidden = false;
  });
  addEventListener("dragover", (event) => carries(event) && event.preventDefault());
  addEventListener("dragleave", (event) => {
    if (carries(event) && --depth <= 0) dropping.hidden = true;
  });
  addEventListener("drop", (event) => {
    if (!carries(event)) return;
    event.preventDefault();
    depth = 0;
    dropping.hidden = true;
    actions.upload(event.dataTransfer.files, event.shiftKey);
  });
  addEventListener("paste", (event) => {
    const files = event.clipboardData?.files;
    if (!files?.length) return;
    event.preventDefault();
    actions.upload(files);
  });
}

// The embeddings of a run are shown under the name of the run.
function title() {
  const { name, run, gallery, galleries } = session.gallery;
  if (galleries?.length > 1) return gallery;
  return run && name.endsWith("embeddings.safetensors") ? short(run) : short(name);
}

// Whether clicks select images.
function picking(on) {
  selection.pick(on);
  document.getElementById("select").setAttribute("aria-pressed", String(on));
  document.body.classList.toggle("picking", on);
  picker.show(state.get());
}

async function share() {
  if (session.files.length) toast("Link copied, without the image you dropped: it stays on this computer.");
  try {
    await navigator.clipboard.writeText(location.href);
    if (!session.files.length) toast("Link copied.");
  } catch {
    toast("The link is the address of this page.");
  }
}

// ---- Several galleries on one server

let opened = "";
// The key of uploaded images that the next gallery is searched with, and the most characters they may have.
const CARRIED = "gallerist carried images";
const CARRIABLE = 4e6;

const dataUrl = (file) =>
  new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.addEventListener("load", () => resolve(reader.result));
    reader.addEventListener("error", () => reject(reader.error));
    reader.readAsDataURL(file);
  });

// Opens another gallery. Uploaded images remain the query; items belong to their gallery.
async function change(name) {
  const { view } = state.get();
  const images = await Promise.all(session.files.map(async ({ file, name: called, region }) => ({ called, region, url: await dataUrl(file) }))).catch(() => []);
  try {
    if (images.length) sessionStorage.setItem(CARRIED, JSON.stringify(images).slice(0, CARRIABLE + 1).length > CARRIABLE ? "[]" : JSON.stringify(images));
  } catch {
    // Without storage the images must be given again.
  }
  const upload = images.map(({ called }) => called).join(", ");
  const keeps = ["gallery", "map", "failures"].includes(view) || images.length ? view : "gallery";
  history.pushState(null, "", state.format({ ...state.parse(""), gallery: name, view: keeps, upload }));
  location.reload();
}

// The images that were carried from another gallery, once.
async function carried() {
  try {
    const images = JSON.parse(sessionStorage.getItem(CARRIED) ?? "[]");
    sessionStorage.removeItem(CARRIED);
    if (!images.length || !state.get().upload || !session.gallery.upload) return;
    const bytes = ({ url }) => Uint8Array.from(atob(url.split(",")[1]), (character) => character.charCodeAt(0));
    const files = images.map((image) => ({ ...image, file: new File([bytes(image)], image.called, { type: image.url.split(/[:;]/)[1] }) }));
    session.setFiles(files.map(({ file, called, region }) => ({ file, name: called, size: file.size, region, url: URL.createObjectURL(file) })));
  } catch {
    // What is stored is not readable: the page says that the image is missing.
  }
}

function switcher() {
  const { gallery: now, galleries = [] } = session.gallery;
  if (galleries.length < 2) return null;
  const select = h("select", { "aria-label": "Gallery", onchange: () => change(select.value) }, galleries.map((name) => h("option", { value: name, selected: name === now }, name)));
  return select;
}

// Asks for a token, unless this tab has one that the server knows. It is tried once: a browser may refuse cookies.
let tried = false;
async function ask() {
  const known = !tried;
  tried = true;
  if (known && (await saved.signIn().catch(() => false))) return start();
  const field = h("input", { type: "password", "aria-label": "Token of the server", placeholder: "Token", autocomplete: "current-password" });
  const said = h("p", { class: "warn", role: "alert" });
  const open = async (event) => {
    event.preventDefault();
    const ok = await saved.signIn(field.value.trim()).catch((error) => ((said.textContent = error.message), null));
    if (ok === false) said.textContent = "The server has another token.";
    if (ok) await start();
  };
  const form = h("form", { class: "buttons", onsubmit: open }, field, h("button", { type: "submit", class: "main" }, "Open the gallery"));
  main.replaceChildren(notice("This gallery needs a token", "Ask the operator of the server for one.", h("div", {}, form, said)));
  field.focus();
}

async function start() {
  opened = state.get().gallery;
  api.choose(opened);
  try {
    await session.open();
  } catch (error) {
    if (error.status === 401) return ask();
    main.replaceChildren(notice(error.message, error.hint, button("Try again", start), "error"));
    return;
  }
  marks.open(session.gallery);
  await saved.open(session.gallery);
  const name = document.getElementById("name");
  const several = switcher();
  name.replaceChildren(several ?? title());
  await carried();
  name.title = session.gallery.name;
  bar = querybar.make();
  document.getElementById("query").replaceChildren(bar.element);
  details = item.make();
  picker = picked.make();
  document.querySelector(".panes").before(picker.element);
  const kept = savedlists.make();
  document.getElementById("select").addEventListener("click", () => picking(!selection.picking));
  document.getElementById("saved-open").addEventListener("click", () => kept.open());
  document.getElementById("skip").addEventListener("click", () => main.focus());
  document.getElementById("share").addEventListener("click", share);
  document.getElementById("help-open").addEventListener("click", () => help.showModal());
  document.getElementById("help-close").addEventListener("click", () => help.close());
  listen();
  state.subscribe(show);
  const again = () => show(state.get());
  actions.narrow.addEventListener("change", again);
  document.addEventListener("selection-known", again);
  saved.subscribe(again);
  // The side pane can show the ranked list only if there is one.
  show(state.get());
  session.watch(again);
}

start();

// The dialog of saved selections and tags: opens, renames, exports and deletes them.

import * as api from "./api.js";
import * as csv from "./csv.js";
import { button, cut, h, number, plural } from "./dom.js";
import * as saved from "./saved.js";
import * as session from "./session.js";
import * as state from "./state.js";

const TITLES = { selections: "Selections", tags: "Tags" };

// Ids that are looked up at a time.
const AT_ONCE = 1000;

export function make() {
  const body = h("div", { class: "saved-body" });
  const close = button("Close", () => dialog.close(), { class: "quiet" });
  const dialog = h("dialog", { class: "saved", "aria-labelledby": "saved-title" }, h("header", {}, h("h2", { id: "saved-title" }, "Saved"), close), body);
  document.body.append(dialog);
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());

  const show = (kind, name) => {
    dialog.close();
    const { view } = state.get();
    state.set({ saved: `${kind}:${name}`, view: view === "ranked" && session.hasQuery() ? view : "gallery", set: "" });
  };

  async function table(kind, name) {
    const ids = saved.ownIds(kind, name);
    const columns = (session.gallery.columns ?? []).map((column) => column.name);
    const known = new Map();
    for (let at = 0; at < ids.length; at += AT_ONCE) (await api.lookup(ids.slice(at, at + AT_ONCE))).forEach((item) => known.set(item.id, item));
    const row = (id) => {
      const item = known.get(id) ?? { id };
      return [id, item.label, item.path, item.camera, saved.tagsOf(item).join("|"), ...columns.map((column) => [item.columns?.[column] ?? ""].flat().join("|"))];
    };
    csv.save("items.csv", csv.format([["id", "label", "path", "camera", "tags", ...columns], ...ids.map(row)]));
  }

  // The filter follows a list that has another name, or none.
  const follow = (kind, name, to) => state.get().saved === `${kind}:${name}` && state.set({ saved: to });

  // Replaces the name by a field.
  function rename(line, kind, name) {
    const field = h("input", { type: "text", value: name, "aria-label": `New name of ${name}`, maxlength: "200" });
    const done = async () => {
      const to = field.value.trim();
      if (!to || !(await saved.attempt(() => saved.rename(kind, name, to, () => follow(kind, name, `${kind}:${to}`))))) return field.focus();
      draw();
    };
    field.addEventListener("keydown", (event) => {
      if (event.key === "Enter") done();
      else if (event.key === "Escape") draw();
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
    line.replaceChildren(field, h("span", { class: "buttons" }, button("Rename", done, { class: "main" }), button("Cancel", draw)));
    field.select();
    field.focus();
  }

  function erase(line, kind, name, count) {
    const done = async () => {
      if (await saved.attempt(() => saved.remove(kind, name, () => follow(kind, name, "")))) draw();
    };
    line.replaceChildren(h("span", {}, `Delete the ${saved.KINDS[kind]} “${name}” of ${plural(count, "item")}? The items stay.`), h("span", { class: "buttons" }, button("Delete", done, { class: "main" }), button("Keep", draw)));
    line.querySelector("button").focus();
  }

  function row(kind, { name, count, unknown, own }) {
    const line = h("li", {});
    const facts = [plural(count, "item"), unknown ? `${number(unknown)} not in the gallery now` : null, own ? "in this tab" : null].filter(Boolean).join(", ");
    const export_ = own ? button("CSV", () => saved.attempt(() => table(kind, name)), { class: "quiet" }) : h("a", { href: api.savedTable(kind, name), download: "items.csv" }, "CSV");
    const changes = own || saved.isStored() ? [button("Rename", () => rename(line, kind, name), { class: "quiet", "aria-label": `Rename ${name}` }), button("Delete", () => erase(line, kind, name, count), { class: "quiet", "aria-label": `Delete ${name}` })] : [];
    line.append(h("span", { class: "who" }, cut(name), h("span", { class: "soft" }, facts)), h("span", { class: "buttons" }, button(kind === "tags" ? "Filter" : "Open", () => show(kind, name), { "aria-label": `${kind === "tags" ? "Filter by" : "Open"} ${name}` }), export_, changes));
    return line;
  }

  function place() {
    const { writable, file } = saved.about();
    if (saved.isStored()) {
      const count = saved.ownCount();
      const move = count > 0 && button(`Store ${plural(count, "list")} of this tab on the server`, async () => (await saved.attempt(saved.store), draw()));
      return [h("p", { class: "soft" }, `Stored on the server in ${file}.`), move];
    }
    const tab = "Yours are kept in this tab until it is closed.";
    if (!writable) return [h("p", { class: "soft" }, `The server does not store tags and selections: it was not started with --writable, or its gallery is no file. ${tab}`)];
    const field = h("input", { type: "password", "aria-label": "Token of the server", placeholder: "Token", autocomplete: "off" });
    const said = h("span", { class: "warn", role: "alert" });
    const use = async () => {
      const ok = await saved.useToken(field.value.trim()).catch((error) => ((said.textContent = error.message), null));
      if (ok === false) said.textContent = "The server permits no changes with this token.";
      if (ok) draw();
    };
    return [h("p", { class: "soft" }, `The server stores tags and selections for users with its token. ${tab}`), h("form", { class: "buttons", onsubmit: (event) => (event.preventDefault(), use()) }, field, h("button", { type: "submit" }, "Use the token"), said)];
  }

  function draw() {
    const part = (kind) => {
      const all = saved.lists(kind);
      const none = kind === "tags" ? "No tags yet. Select items, write a name and choose “Add tag”." : "No selections yet. Select items, write a name and choose “Save selection”.";
      return h("section", { "aria-label": TITLES[kind] }, h("h3", {}, TITLES[kind]), all.length ? h("ul", { class: "saved-lists" }, all.map((list) => row(kind, list))) : h("p", { class: "soft" }, none));
    };
    body.replaceChildren(...place().filter(Boolean), part("selections"), part("tags"));
  }

  return {
    open() {
      draw();
      dialog.showModal();
    },
  };
}

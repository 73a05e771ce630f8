// The bar of the selection: its items get a tag, lose one, or are saved under a name.

import { button, h, plural, replace, toast } from "./dom.js";
import * as saved from "./saved.js";
import * as selection from "./selection.js";
import * as state from "./state.js";

export function make() {
  const names = h("datalist", { id: "list-names" });
  const facts = h("span", { class: "facts" });
  const name = h("input", { type: "text", "aria-label": "Name of a tag or of a selection", placeholder: "Name", list: "list-names", maxlength: "200", autocomplete: "off" });
  const where = h("span", { class: "soft" });
  const clear = button("Clear", selection.clear, { class: "quiet" });
  const buttons = h("span", { class: "buttons" });
  const element = h("section", { class: "picked", "aria-label": "Selected items", hidden: true }, facts, clear, h("span", { class: "naming" }, name, names), buttons, where);

  const act = async (kind, done, change) => {
    const wanted = name.value.trim();
    if (!wanted) {
      toast(`Write the name of the ${saved.KINDS[kind]} first.`);
      return name.focus();
    }
    const s = state.get();
    await saved.attempt(async () => {
      const ids = await selection.ids(s);
      await saved.change(kind, wanted, change(ids));
      toast(`${plural(ids.length, "item")} ${done} “${wanted}”${saved.isStored() ? "" : ", kept in this tab only"}.`);
    });
  };
  const tag = () => act("tags", "tagged", (ids) => ({ add: ids }));
  const untag = () => act("tags", "without the tag", (ids) => ({ remove: ids }));
  const save = () => act("selections", "saved in", (ids) => ({ add: ids }));

  name.addEventListener("keydown", (event) => {
    if (event.key === "Enter") tag();
    else if (event.key === "Escape") name.blur();
    else return;
    event.preventDefault();
    event.stopPropagation();
  });

  return {
    element,
    show(s) {
      const exists = selection.exists(s);
      element.hidden = !exists && !selection.picking;
      if (element.hidden) return;
      facts.textContent = exists ? selection.summary(s) : "Click images to select them";
      names.replaceChildren(...[...new Set(Object.keys(saved.KINDS).flatMap((kind) => saved.lists(kind).map((list) => list.name)))].map((value) => h("option", { value })));
      replace(buttons, exists && [button("Add tag", tag, { class: "main" }), button("Remove tag", untag), button("Save selection", save)]);
      clear.hidden = !exists;
      where.textContent = saved.isStored() ? "" : "kept in this tab only";
      where.title = saved.isStored() ? "" : "Saved, at the top, says why";
    },
  };
}

// Tables that the user downloads.

import { h } from "./dom.js";

const field = (value) => (/[",\r\n]/.test(String(value)) ? `"${String(value).replaceAll('"', '""')}"` : String(value));

// The text of a table: rows of values.
export const format = (rows) => rows.map((row) => row.map((value) => field(value ?? "")).join(",") + "\r\n").join("");

export function save(name, text) {
  const link = h("a", { href: URL.createObjectURL(new Blob([text], { type: "text/csv" })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

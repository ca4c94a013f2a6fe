/**
 * Tables whose rows keep their place: a row is found again by its key, so an update changes only cells.
 * On a narrow screen, columns marked `wide` are hidden.
 */

import { h } from "./dom.js";

/**
 * @template Row
 * @param {{label: string, columns: Column<Row>[], rows: Row[], key: (row: Row) => string,
 *   holds?: boolean}} options `holds`: rows stay while the pointer or the focus is inside
 */
export function table({ label, columns, rows, key, holds }) {
  const heads = columns.map(([title, kind]) =>
    h("th", { scope: "col", class: kind || null }, kind === "actions" || kind === "check" ? h("span", { class: "hidden" }, title) : title));
  const body = rows.map((row) =>
    h("tr", { key: key(row) }, columns.map(([, kind, cell]) => h("td", { class: kind || null }, cell(row)))));
  return h("div", { class: "table", role: "region", "aria-label": label, tabindex: 0, "data-hold": holds || null },
    h("table", null, h("thead", null, h("tr", null, heads)), h("tbody", null, body)));
}

/**
 * Move the focus to the next or previous row, by the first link or button of a row.
 * @param {Element} root @param {1 | -1} step
 */
export function moveRow(root, step) {
  const rows = Array.from(root.querySelectorAll("tbody tr"));
  const at = rows.findIndex((row) => row.contains(document.activeElement));
  const start = at < 0 && step < 0 ? rows.length : at;
  const target = rows[Math.min(rows.length - 1, Math.max(0, start + step))];
  const focusable = target?.querySelector("a, button, summary");
  if (focusable instanceof HTMLElement) focusable.focus();
  target?.scrollIntoView({ block: "nearest" });
}

/** Click on an element of the row that has the focus. @param {Element} root @param {string} selector */
export function clickInRow(root, selector) {
  const row = Array.from(root.querySelectorAll("tbody tr")).find((one) => one.contains(document.activeElement));
  const found = row?.querySelector(selector);
  if (found instanceof HTMLElement) found.click();
}

/** Follow the link to the next or the previous page of a list. @param {Element} root @param {"next" | "prev"} way */
export function followPage(root, way) {
  const found = root.querySelector(`.pages [rel=${way}]`);
  if (found instanceof HTMLElement) found.click();
}

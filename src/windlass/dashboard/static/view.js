/**
 * One view on the screen: it loads its data, again and again, and draws it.
 *
 * 1. At most one request is in flight. The next one begins a while after the answer, later after
 *    errors, and not while the page is hidden or the server is known to be away: the stream of
 *    events tells when it is back. Leaving the view aborts it.
 * 2. Rows of a table that holds them stay in place while the pointer or the focus is inside the
 *    table. Their cells change; a button tells how many new rows wait, and shows them.
 * 3. After an error the last data stays, with a note about its age.
 */

import { h, render } from "./dom.js";
import { count, duration } from "./format.js";
import { button, problemPanel, skeleton } from "./ui.js";

const MOST_FAILURES = 3;
const HELD = "[data-hold] tbody:hover, [data-hold] tbody:focus-within";

export class View {
  /** @param {Element} root @param {Page} page @param {Context} context */
  constructor(root, page, context) {
    this.root = root;
    this.page = page;
    this.context = context;
    this.control = new AbortController();
    /** @type {any} */ this.data = undefined;
    /** @type {any} */ this.waiting = undefined;
    /** @type {unknown} */ this.error = null;
    this.loadedAt = 0;
    this.failures = 0;
    this.isLoading = false;
    this.isStale = false;
    this.keepsOld = false;
    /** @type {Timer} */ this.timer = undefined;
  }

  /** @param {boolean} isSamePage the old content stays until the new one is there */
  start(isSamePage) {
    this.keepsOld = isSamePage;
    this.draw();
    this.load();
  }

  stop() {
    clearTimeout(this.timer);
    this.control.abort();
  }

  /** Load as soon as possible: now, or after the request that is in flight. */
  reload() {
    this.isStale = true;
    if (!this.isLoading) this.load();
  }

  async load() {
    clearTimeout(this.timer);
    if (this.control.signal.aborted) return;
    if (document.hidden && this.data !== undefined) return; // `reload` follows when it is visible
    if (!this.isStale && this.data !== undefined && this.context.isAway()) {
      this.timer = setTimeout(() => this.load(), this.page.everyMs);
      return;
    }
    this.isLoading = true;
    this.isStale = false;
    try {
      this.waiting = await this.page.load(this.context, this.control.signal);
      this.loadedAt = Date.now();
      this.failures = 0;
      this.error = null;
    } catch (error) {
      this.failures += 1;
      this.error = error;
    }
    this.isLoading = false;
    if (this.control.signal.aborted) return;
    this.draw();
    if (this.isStale) return void this.load();
    const delay = this.page.everyMs * 2 ** Math.min(this.failures, MOST_FAILURES);
    this.timer = setTimeout(() => this.load(), delay);
  }

  /** Draw the data. @param {boolean} [isForced] also rows that wait */
  draw(isForced) {
    if (this.control.signal.aborted) return;
    const isHeld = !isForced && this.waiting !== undefined && this.data !== undefined && this.holds();
    if (this.waiting !== undefined && !isHeld) {
      this.data = this.waiting;
      this.waiting = undefined;
    }
    this.context.now = Date.now();
    if (this.keepsOld && this.data === undefined && !this.error) return;
    render(this.root, this.describe(isHeld));
  }

  holds() {
    return this.root.querySelector(HELD) !== null;
  }

  /** @param {boolean} isHeld @returns {Child} */
  describe(isHeld) {
    if (this.data === undefined) return this.error ? problemPanel(this.error, () => this.reload()) : skeleton();
    const { data, added } = isHeld ? keepRows(this.data, this.waiting, this.page.list) : { data: this.data, added: 0 };
    const age = (this.context.now - this.loadedAt) / 1000;
    return [
      this.error ? h("div", { key: "stale" }, problemPanel(this.error, () => this.reload()),
        h("p", { class: "note" }, `What follows is ${duration(Math.round(age))} old.`)) : null,
      h("div", { key: "page", class: "page" }, this.page.render(data, this.context)),
      h("div", { key: "held", class: "held", role: "status" },
        added ? button(added === 1 ? "Show 1 new row" : `Show ${count(added)} new rows`, () => this.draw(true)) : null),
    ];
  }
}

/**
 * The new data with the rows of the old one, in their order. A row that is gone stays as it was.
 * @param {any} before @param {any} after @param {{rows: string, key: string} | undefined} list
 * @returns {{data: any, added: number}}
 */
export function keepRows(before, after, list) {
  if (!list) return { data: before, added: 0 };
  const { rows, key } = list;
  const fresh = new Map(after[rows].map((/** @type {any} */ row) => [row[key], row]));
  const kept = before[rows].map((/** @type {any} */ row) => fresh.get(row[key]) || row);
  for (const row of before[rows]) fresh.delete(row[key]);
  return { data: { ...after, [rows]: kept }, added: fresh.size };
}

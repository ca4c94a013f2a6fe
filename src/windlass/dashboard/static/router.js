/**
 * Addresses of views, such as `#/jobs?state=dead&queue=mail`, and of the pages of lists.
 *
 * The part after `#` is never sent to the server, so the dashboard works below any path.
 */

/** Read the hash of an address. @param {string} hash @returns {Place} */
export function readHash(hash) {
  const [path, search] = splitOnce(hash.replace(/^#?\/?/, ""), "?");
  const parts = path.split("/").filter(Boolean).map(decode);
  return { parts, query: Object.fromEntries(new URLSearchParams(search)) };
}

/**
 * Write an address. Parts of the query that are empty are left out.
 * @param {string[]} parts @param {Query} [query] @returns {string}
 */
export function link(parts, query = {}) {
  const text = searchText(query);
  return `#/${parts.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

/**
 * The address for what a user typed into the search: the id of a job, or the name of a task.
 * @param {string} text @returns {string}
 */
export function searchLink(text) {
  const typed = text.trim();
  const id = typed.toLowerCase();
  if (/^[0-9a-z]{26}$/.test(id)) return link(["jobs", id]);
  return link(["jobs"], { task: typed });
}

const PAGES = "windlass.pages";
const MOST_PAGES = 200;

/**
 * Remember which page of a list comes before another one, by their cursors: a list can only be read
 * forward. A reload keeps this; in another browser the list begins with its first page.
 * @param {string} next @param {string} current
 */
export function rememberPage(next, current) {
  const known = readPages();
  if (known[next] === current) return;
  const kept = Object.entries(known).slice(-MOST_PAGES);
  sessionStorage.setItem(PAGES, JSON.stringify({ ...Object.fromEntries(kept), [next]: current }));
}

/** The cursor of the page before; undefined if it is not known. @param {string} cursor @returns {string | undefined} */
export function pageBefore(cursor) {
  return readPages()[cursor];
}

/** @returns {{[next: string]: string}} */
function readPages() {
  try {
    return JSON.parse(sessionStorage.getItem(PAGES) || "{}");
  } catch {
    return {};
  }
}

/** The text of a query, without its empty parts. @param {Query} query */
export function searchText(query) {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value || value === 0) search.set(name, String(value));
  return search.toString();
}

/** @param {string} text @param {string} mark @returns {[string, string]} */
function splitOnce(text, mark) {
  const at = text.indexOf(mark);
  return at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at + 1)];
}

/** @param {string} text */
function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/**
 * Rendering: descriptions of elements become elements, and later descriptions change them in place.
 *
 * 1. `h` describes an element. Text is always a text node, so nothing that is stored can become
 *    markup. Attributes that could run a script are refused.
 * 2. `render` brings the children of a root in line with descriptions. Children with a key are
 *    found again by it, others by their place. What stays is not touched: focus, scroll positions
 *    and open dialogs survive an update.
 * 3. A field is written only when its description changes, never over what a user types.
 */

const SVG = "http://www.w3.org/2000/svg";
/** Attributes that are also properties of fields. */
const FIELDS = new Set(["value", "checked", "selected", "open"]);
const REFUSED = /^(on|src|srcdoc|style|formaction|innerhtml|outerhtml|xlink)/i;
const SAFE_LINK = /^(#|\.\/|\.$|https?:)/;

/** @type {WeakMap<Element, Props>} */
const rendered = new WeakMap();

/** Describe an element. @param {string} tag @param {Props | null} [props] @param {...Child} children */
export function h(tag, props, ...children) {
  const given = props || {};
  for (const [name, value] of Object.entries(given)) {
    if (name !== "on" && REFUSED.test(name)) throw new Error(`h: the attribute ${name} is refused`);
    if (name === "href" && !SAFE_LINK.test(String(value))) {
      throw new Error("h: a link starts with #, ./ or https:");
    }
  }
  return { tag, key: given.key, props: given, children: flatten(children) };
}

/**
 * Lists are joined, and numbers become texts; null, undefined and booleans are left out.
 * @param {Child[]} children @returns {Described[]}
 */
function flatten(children) {
  /** @type {Described[]} */
  const flat = [];
  for (const child of children) {
    if (Array.isArray(child)) flat.push(...flatten(child));
    else if (typeof child === "object" && child !== null) flat.push(child);
    else if (typeof child === "string") flat.push(child);
    else if (typeof child === "number") flat.push(String(child));
  }
  return flat;
}

/** Bring the children of an element in line with descriptions. @param {Element} root @param {...Child} children */
export function render(root, ...children) {
  patchChildren(root, flatten(children));
}

/** @param {Element} parent @param {Described[]} wanted */
function patchChildren(parent, wanted) {
  /** @type {Map<string, Element>} */
  const keyed = new Map();
  for (const child of Array.from(parent.children)) {
    const key = rendered.get(child)?.key;
    if (key !== undefined) keyed.set(key, child);
  }
  const kept = new Set(wanted.map((one) => (typeof one === "string" ? undefined : one.key)));
  /** @type {ChildNode | null} */
  let place = parent.firstChild;
  for (const tree of wanted) {
    place = skipRemoved(parent, place, kept);
    const found = findNode(tree, place, keyed);
    const node = found || createNode(tree, parent);
    if (node === place) place = node.nextSibling;
    else parent.insertBefore(node, place);
    if (typeof tree === "string") {
      if (node.nodeValue !== tree) node.nodeValue = tree;
    } else {
      patchElement(/** @type {Element} */ (node), tree);
    }
  }
  while (place) {
    const next = place.nextSibling;
    parent.removeChild(place);
    place = next;
  }
}

/**
 * Remove keyed elements that are not wanted any more, so that those after them need not move.
 * @param {Element} parent @param {ChildNode | null} place @param {Set<string | undefined>} kept
 */
function skipRemoved(parent, place, kept) {
  while (place) {
    const key = rendered.get(/** @type {Element} */ (place))?.key;
    if (key === undefined || kept.has(key)) return place;
    const next = place.nextSibling;
    parent.removeChild(place);
    place = next;
  }
  return place;
}

/**
 * @param {Described} tree @param {ChildNode | null} place @param {Map<string, Element>} keyed
 * @returns {ChildNode | null}
 */
function findNode(tree, place, keyed) {
  if (typeof tree === "string") return place && place.nodeType === 3 ? place : null;
  if (tree.key !== undefined) {
    const found = keyed.get(tree.key);
    return found && isTag(found, tree.tag) ? found : null;
  }
  const isFree = place && place.nodeType === 1 && !rendered.get(/** @type {Element} */ (place))?.key;
  return isFree && isTag(/** @type {Element} */ (place), tree.tag) ? place : null;
}

/** @param {Element} element @param {string} tag */
function isTag(element, tag) {
  return element.tagName.toLowerCase() === tag.toLowerCase();
}

/** @param {Described} tree @param {Element} parent @returns {ChildNode} */
function createNode(tree, parent) {
  if (typeof tree === "string") return document.createTextNode(tree);
  const isSvg = tree.tag === "svg" || parent.namespaceURI === SVG;
  const element = isSvg
    ? document.createElementNS(SVG, tree.tag)
    : document.createElement(tree.tag);
  rendered.set(element, { key: tree.key });
  return element;
}

/** @param {Element} element @param {Tree} tree */
function patchElement(element, tree) {
  const before = rendered.get(element) || {};
  const after = tree.props;
  rendered.set(element, after);
  for (const name of Object.keys(before)) {
    if (!(name in after) && name !== "key" && name !== "on") setAttribute(element, name, null);
  }
  patchChildren(element, tree.children); // first: a select needs its options for its value
  for (const [name, value] of Object.entries(after)) {
    if (name === "key" || name === "on") continue;
    if (before[name] !== value) setAttribute(element, name, /** @type {Scalar} */ (value));
  }
  for (const event of Object.keys(after.on || {})) {
    if (!before.on || !(event in before.on)) element.addEventListener(event, dispatch);
  }
}

/** Call the handler that the latest description has for an event. @param {Event} event */
function dispatch(event) {
  const handlers = rendered.get(/** @type {Element} */ (event.currentTarget))?.on;
  const handler = handlers && handlers[event.type];
  if (handler) handler(event);
}

/** @param {Element} element @param {string} name @param {Scalar} value */
function setAttribute(element, name, value) {
  if (FIELDS.has(name)) {
    /** @type {any} */ (element)[name] = value ?? (name === "value" ? "" : false);
    if (name !== "open") return;
  }
  if (value === null || value === undefined || value === false) element.removeAttribute(name);
  else element.setAttribute(name, value === true ? "" : String(value));
}

/**
 * The keyboard: single keys, and pairs such as `g q`. Keys are ignored while a field has the focus
 * or a dialog is open, and with Ctrl, Alt or Meta.
 */

const PAIR_MS = 1500;

/**
 * Find the shortcut for the keys pressed so far. `isPrefix` tells that more keys may follow.
 * @param {Shortcut[]} shortcuts @param {string} pressed @returns {{found: Shortcut | undefined, isPrefix: boolean}}
 */
export function findShortcut(shortcuts, pressed) {
  return {
    found: shortcuts.find((one) => one.keys === pressed),
    isPrefix: shortcuts.some((one) => one.keys.startsWith(`${pressed} `)),
  };
}

/** Run shortcuts as their keys are pressed. @param {Document} page @param {Shortcut[]} shortcuts */
export function listen(page, shortcuts) {
  let pressed = "";
  let last = 0;
  page.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || isTyping(page, event.target)) return;
    const now = Date.now();
    const before = now - last < PAIR_MS ? pressed : "";
    last = now;
    let keys = before ? `${before} ${event.key}` : event.key;
    let { found, isPrefix } = findShortcut(shortcuts, keys);
    if (before && !found && !isPrefix) {
      keys = event.key;
      ({ found, isPrefix } = findShortcut(shortcuts, keys));
    }
    pressed = isPrefix ? keys : "";
    if (!found) return;
    event.preventDefault();
    found.run();
  });
}

/** @param {Document} page @param {EventTarget | null} target */
function isTyping(page, target) {
  if (page.querySelector("dialog[open]")) return true;
  const element = /** @type {Element | null} */ (target);
  return Boolean(element?.closest?.("input, textarea, select"));
}

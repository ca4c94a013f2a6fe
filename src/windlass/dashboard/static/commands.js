/**
 * The equal commands of an action, for a shell: `curl` and `windlass`.
 *
 * Every word is quoted, so that a name with spaces, quotes or `$` is one argument.
 */

/** Linux refuses words of a command that are longer than 128 KiB. */
const LONGEST_WORD = 100_000;

/** Quote one argument for a POSIX shell. @param {string} text */
export function quote(text) {
  if (/^[A-Za-z0-9_@%+=:,./-]+$/.test(text)) return text;
  return `'${text.replaceAll("'", `'"'"'`)}'`;
}

/**
 * The `curl` command of a request. A large body is its standard input.
 * @param {{base: string, method: string, path: string, body?: string, needsToken: boolean}} request
 */
export function curlCommand({ base, method, path, body, needsToken }) {
  const words = ["curl", "-X", method];
  const parts = [words.join(" ")];
  if (needsToken) parts.push('-H "Authorization: Bearer $WINDLASS_TOKEN"');
  if (body === undefined) return [...parts, quote(base + path)].join(" ");
  parts.push("-H 'Content-Type: application/json'");
  if (body.length <= LONGEST_WORD) return [...parts, "-d", quote(body), quote(base + path)].join(" ");
  return `${[...parts, "--data-binary", "@-", quote(base + path)].join(" ")} <<'JSON'\n${body}\nJSON`;
}

/** The `windlass` command with these arguments; null if one is too long for a shell. @param {string[]} words */
export function windlassCommand(words) {
  if (words.some((word) => word.length > LONGEST_WORD)) return null;
  return ["windlass", ...words].map(quote).join(" ");
}

/**
 * The dialog for an action: what it does, its preview, its equal commands, and its confirmation.
 *
 * The dialog is an element of its own beside the views, so no update of a view can touch it. An
 * error stays inside the dialog, with everything that was typed.
 */

import { copyText } from "./clipboard.js";
import { button, problemPanel } from "./ui.js";
import { curlCommand, windlassCommand } from "./commands.js";
import { h, render } from "./dom.js";
import { count, messageOf } from "./format.js";

/** The longest command that is shown in full. All of it is copied. */
const SHOWN = 2000;

/** @param {string} text */
function shortened(text) {
  return text.length > SHOWN ? `${text.slice(0, SHOWN)}… (${count(text.length)} characters, all of them are copied)` : text;
}

export class ActionDialog {
  /**
   * @param {HTMLDialogElement} element @param {Api} api @param {Action} action
   * @param {boolean} needsToken @param {(result: Done) => void} onDone
   */
  constructor(element, api, action, needsToken, onDone) {
    this.element = element;
    this.api = api;
    this.action = action;
    this.needsToken = needsToken;
    this.onDone = onDone;
    /** @type {Values} */
    this.values = Object.fromEntries((action.fields || []).map((field) => [field.name, field.value]));
    this.typed = "";
    this.preview = "";
    this.copied = "";
    this.isSending = false;
    /** @type {unknown} */
    this.error = null;
    this.control = new AbortController();
  }

  open() {
    render(this.element); // nothing of the last dialog stays
    this.element.addEventListener("close", () => this.control.abort(), { once: true });
    this.draw();
    this.element.showModal();
    this.loadPreview();
  }

  async loadPreview() {
    if (!this.action.preview) return;
    this.preview = "Counting…";
    this.draw();
    try {
      this.preview = await this.action.preview(this.api, this.control.signal);
    } catch (error) {
      this.preview = `The number is not known: ${messageOf(error)}`;
    }
    this.draw();
  }

  /** What is wrong with a field, or null. @param {Field} field */
  wrong(field) {
    return field.check(this.values[field.name]);
  }

  isReady() {
    const isTyped = !this.action.typed || this.typed.trim() === this.action.typed;
    return isTyped && !this.isSending && (this.action.fields || []).every((field) => !this.wrong(field));
  }

  async confirm() {
    if (!this.isReady()) return;
    this.isSending = true;
    this.error = null;
    this.draw();
    const { method, path, body } = this.action.request(this.values);
    try {
      const answer = await this.api.request(method, path, body);
      this.onDone(this.action.done?.(answer) || { text: `Done: ${this.action.title}.` });
      if (!this.control.signal.aborted) this.element.close();
    } catch (error) {
      this.error = error;
    }
    this.isSending = false;
    this.draw();
  }

  /** @param {string} text */
  async copy(text) {
    this.copied = (await copyText(text)) ? text : "";
    this.draw();
  }

  draw() {
    if (this.control.signal.aborted) return;
    const { action } = this;
    const onSubmit = (/** @type {Event} */ event) => {
      event.preventDefault();
      this.confirm();
    };
    render(this.element,
      h("form", { method: "dialog", on: { submit: onSubmit } },
        h("h2", { id: "dialog-title" }, action.title),
        h("p", null, action.explain),
        this.preview ? h("p", { key: "preview", class: "strong", role: "status" }, this.preview) : null,
        (action.fields || []).map((field) => this.field(field)),
        action.typed ? this.confirmation(action.typed) : null,
        this.error ? h("div", { key: "error" }, problemPanel(this.error)) : null,
        h("div", { key: "buttons", class: "buttons" },
          button("Close", () => this.element.close()),
          h("button", { type: "submit", class: action.isDanger ? "danger" : "primary",
            disabled: !this.isReady(), autofocus: !action.typed && !action.fields?.length },
            this.isSending ? "Sending…" : action.label)),
        this.commandList()));
  }

  commandList() {
    const commands = this.commands();
    return h("div", { key: "commands", class: "commands" }, h("h3", null, "The same from a shell"),
      commands.length ? commands.map(([name, text]) => h("div", { key: name, class: "command" },
        h("code", { tabindex: 0, role: "region", "aria-label": `${name} command` }, shortened(text)),
        button(this.copied === text ? "Copied" : "Copy", () => this.copy(text), { "aria-label": `Copy the ${name} command` })))
        : h("p", { class: "muted" }, "Shown when the fields are valid."));
  }

  /** The equal commands, by the program; none while a field is invalid. @returns {[string, string][]} */
  commands() {
    if ((this.action.fields || []).some((field) => this.wrong(field))) return [];
    const { method, path, body } = this.action.request(this.values);
    const words = this.action.command(this.values);
    const curl = curlCommand({ base: this.api.base, method, path, body, needsToken: this.needsToken });
    const own = words && windlassCommand(words);
    return own ? [["curl", curl], ["windlass", own]] : [["curl", curl]];
  }

  /** @param {Field} field */
  field(field) {
    const wrong = this.wrong(field);
    const onInput = (/** @type {{target: HTMLInputElement}} */ event) => {
      this.values[field.name] = event.target.value;
      this.draw();
    };
    const props = {
      id: `field-${field.name}`, value: field.value, "aria-invalid": wrong ? "true" : null,
      "aria-describedby": `wrong-${field.name}`, spellcheck: "false", autocomplete: "off", on: { input: onInput },
    };
    return h("div", { key: field.name, class: "field" },
      h("label", { for: `field-${field.name}` }, field.label),
      field.rows ? h("textarea", { ...props, rows: field.rows, class: "mono" }) : h("input", { ...props, type: "text" }),
      h("p", { id: `wrong-${field.name}`, class: "wrong", role: "status" }, wrong ? `${field.name} ${wrong}` : ""));
  }

  /** @param {string} expected */
  confirmation(expected) {
    const onInput = (/** @type {{target: HTMLInputElement}} */ event) => {
      this.typed = event.target.value;
      this.draw();
    };
    return h("div", { key: "typed", class: "field" },
      h("label", { for: "typed" }, "Type ", h("code", null, expected), " to confirm"),
      h("input", { id: "typed", type: "text", value: "", autocomplete: "off", spellcheck: "false",
        autofocus: true, on: { input: onInput } }));
  }
}

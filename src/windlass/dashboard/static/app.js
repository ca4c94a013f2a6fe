/**
 * The dashboard: the views, and what they share.
 *
 * 1. `start` asks the server who the user is, then shows the view of the address.
 * 2. The stream of events updates the counts once a second, while the page is visible.
 * 3. The banner tells when the server or the engine does not answer, and goes by itself; or that
 *    the login has ended.
 * 4. Actions open their dialog. After an action the view loads again.
 */

import { Api, ApiProblem, healthOf, readProblem } from "./api.js";
import { ActionDialog } from "./dialog.js";
import { h, render } from "./dom.js";
import { banner, foot, helpDialog, top } from "./frame.js";
import { listen } from "./keys.js";
import { Recent } from "./rates.js";
import { link, readHash } from "./router.js";
import { LiveStats } from "./stream.js";
import { clickInRow, followPage, moveRow } from "./table.js";
import { empty, pageHead, problemPanel } from "./ui.js";
import { View } from "./view.js";
import { pageOf, VIEWS } from "./views.js";

/** @type {Page} */
const unknownPage = {
  title: () => "Not found",
  everyMs: 3_600_000,
  load: async () => null,
  render: () => [pageHead("Not found"), empty("There is no such view.", h("a", { href: link([]) }, "Go to the overview"), ".")],
};
const RETURN_TO = "windlass.return-to";
const NOTICE_MS = 10_000;
const SILENCE_MS = 2500;
const AGAIN_MS = 3000;

/** @param {string} id @returns {any} */
const part = (id) => document.getElementById(id);

class Dashboard {
  constructor() {
    this.api = new Api(new URL("./", document.baseURI).href);
    this.api.onHealth = () => this.takeHealth();
    this.recent = new Recent();
    this.awaySince = 0;
    /** @type {any} */ this.stats = null;
    /** @type {Me | null} */ this.me = null;
    /** @type {View | null} */ this.view = null;
    this.live = new LiveStats(this.api, (stats) => this.takeStats(stats), (problem) => this.takeProblem(problem));
    /** @type {Timer} */ this.noticeTimer = undefined;
    /** @type {Timer} */ this.silence = undefined;
  }

  async start() {
    try {
      this.me = await this.api.get(["me"]);
    } catch (error) {
      if (error instanceof ApiProblem && error.type === "unauthenticated") return this.goToLogin();
      render(part("main"), problemPanel(error, () => this.start()));
      if (error instanceof ApiProblem && error.isPassing) setTimeout(() => this.start(), AGAIN_MS);
      return;
    }
    if (!this.me?.rights.includes("read_stats")) return this.drawRefusal();
    this.returnToView();
    addEventListener("hashchange", () => this.show());
    document.addEventListener("visibilitychange", () => this.onVisible());
    part("skip").addEventListener("click", (/** @type {Event} */ event) => {
      event.preventDefault(); // the address is that of the view
      part("main").focus();
    });
    part("dialog").addEventListener("close", () => this.keepFocus());
    listen(document, this.shortcuts());
    this.show();
    this.live.show(!document.hidden);
  }

  /** Ask for an access token, and come back to this view. */
  goToLogin() {
    sessionStorage.setItem(RETURN_TO, location.hash);
    location.assign("./login");
  }

  returnToView() {
    const hash = sessionStorage.getItem(RETURN_TO);
    sessionStorage.removeItem(RETURN_TO);
    if (hash && !location.hash) history.replaceState(null, "", hash);
  }

  drawRefusal() {
    this.drawFrame();
    render(part("main"), empty(`A token of the role ${this.me?.role} cannot use the dashboard.`,
      "Log in with another one: ", h("code", null, "windlass token create NAME --role viewer")));
  }

  /** Show the view of the address, when the module of its page is there. */
  async show() {
    const { hash } = location;
    const place = readHash(hash);
    const wasShown = this.view !== null;
    this.drawFrame();
    this.showCurrent();
    this.view?.stop();
    const page = await this.loadPage(place);
    if (!page || hash !== location.hash) return; // a later address is on its way
    const isSamePage = this.view?.page === page;
    document.title = `${page.title(place)} · windlass`;
    if (!isSamePage) render(part("main"));
    this.view = new View(part("main"), page, {
      api: this.api, place, me: /** @type {Me} */ (this.me), stats: this.stats, recent: this.recent,
      now: Date.now(), local: {}, act: (action) => this.act(action), tell: (text) => this.notify({ text }),
      isAway: () => this.isAway(), draw: () => this.view?.draw(), reload: () => this.view?.reload(),
    });
    this.view.start(isSamePage);
    if (isSamePage) return;
    scrollTo(0, 0);
    if (!wasShown) return;
    render(part("notice")); // it belongs to the view before
    render(part("title"), page.title(place)); // for screen readers
    this.keepFocus();
  }

  /** @param {Place} place @returns {Promise<Page | null>} */
  async loadPage(place) {
    const load = pageOf(place);
    try {
      return load ? await load() : unknownPage;
    } catch {
      const detail = "A part of the dashboard was not loaded. The server does not answer, or has another version now.";
      render(part("main"), problemPanel(new ApiProblem("unreachable", 0, "The page is not there", detail), () => location.reload()));
      return null;
    }
  }

  /** Move the focus to the content when the element that had it is gone. */
  keepFocus() {
    if (document.activeElement === document.body) part("main").focus({ preventScroll: true });
  }

  onVisible() {
    clearTimeout(this.silence);
    this.live.show(!document.hidden);
    if (document.hidden) this.recent.clear();
    else this.view?.reload();
  }

  /** @param {any} stats */
  takeStats(stats) {
    const [wasAway, isFirst] = [this.isAway(), !this.stats];
    this.stats = stats;
    this.recent.add(stats, Date.now());
    this.api.tell("ok");
    clearTimeout(this.silence);
    if (!this.live.polling) this.silence = setTimeout(() => this.api.tell("slow"), SILENCE_MS);
    this.drawFrame();
    if (isFirst) this.showCurrent(); // the number of dead jobs moves the menu
    if (!this.view) return;
    this.view.context.stats = stats;
    if (wasAway) this.view.reload();
    else this.view.draw();
  }

  /** @param {any} problem a lost connection, or a problem document */
  takeProblem(problem) {
    const known = problem instanceof ApiProblem ? problem : readProblem(503, JSON.stringify(problem));
    this.recent.clear();
    this.api.tell(healthOf(known));
    this.view?.draw();
  }

  /** Whether the server, the engine or the login is gone, and asking again is pointless for now. */
  isAway() {
    return ["unreachable", "engine-away", "logged-out"].includes(this.api.health);
  }

  takeHealth() {
    const isWell = this.api.health === "ok";
    this.awaySince = isWell ? 0 : this.awaySince || Date.now();
    if (this.api.health === "logged-out") this.live.close();
    render(part("banner"), banner(this.api.health, this.awaySince, () => this.goToLogin()));
    if (this.me) this.drawFrame();
  }

  /** @param {Action} action */
  act(action) {
    new ActionDialog(part("dialog"), this.api, action, Boolean(this.me?.logged_in), (result) => {
      this.notify(result);
      this.view?.reload();
    }).open();
  }

  /** @param {Done} result */
  notify({ text, href }) {
    clearTimeout(this.noticeTimer);
    render(part("notice"), h("p", { key: String(Date.now()) }, text, href ? [" ", h("a", { href }, "Show it")] : null));
    this.noticeTimer = setTimeout(() => render(part("notice")), NOTICE_MS);
  }

  drawFrame() {
    const current = readHash(location.hash).parts[0] || "";
    const dead = this.stats?.jobs?.dead || 0;
    render(part("top"), top({ current, dead, me: this.me, health: this.api.health, isPolling: this.live.polling !== null }));
    render(part("foot"), foot(this.me, () => this.help()));
  }

  /** Scroll the menu of a narrow screen to the current view. `scrollIntoView` would let the first Tab begin there. */
  showCurrent() {
    const [menu, one] = ["nav", "[aria-current]"].map((name) => /** @type {HTMLElement | null} */ (part("top").querySelector(name)));
    if (menu && one) menu.scrollLeft = one.offsetLeft - menu.offsetLeft - (menu.clientWidth - one.offsetWidth) / 2;
  }

  help() {
    const dialog = part("dialog");
    render(dialog);
    render(dialog, helpDialog(this.shortcuts()));
    dialog.showModal();
  }

  /** @returns {Shortcut[]} */
  shortcuts() {
    const go = (/** @type {string} */ name) => () => void (location.hash = link(name ? [name] : []));
    return [
      { keys: "?", text: "List the keys", run: () => this.help() },
      { keys: "/", text: "Search by job id or task", run: () => part("search").focus() },
      { keys: "j", text: "Next row; Enter opens it", run: () => moveRow(part("main"), 1) },
      { keys: "k", text: "Previous row", run: () => moveRow(part("main"), -1) },
      { keys: "x", text: "Select the row", run: () => clickInRow(part("main"), "input[type=checkbox]") },
      { keys: "]", text: "Next page of a list", run: () => followPage(part("main"), "next") },
      { keys: "[", text: "Previous page of a list", run: () => followPage(part("main"), "prev") },
      { keys: "r", text: "Load again", run: () => this.view?.reload() },
      ...VIEWS.map(({ name, title, key }) => ({ keys: `g ${key}`, text: `Go to ${title}`, run: go(name) })),
    ];
  }
}

new Dashboard().start();

/**
 * The views of the menu. The module of a page is loaded when its view is first needed, so the first
 * page loads quickly however many pages there are.
 */

/**
 * The views in the order of the menu: their first part of the address, title, key after `g`, and
 * the loader of their page.
 * @type {MenuView[]}
 */
export const VIEWS = [
  { name: "", title: "Overview", key: "o", load: async () => (await import("./pages/overview.js")).overviewPage },
  { name: "queues", title: "Queues", key: "q", load: async () => (await import("./pages/queues.js")).queuesPage },
  { name: "jobs", title: "Jobs", key: "j", load: async () => (await import("./pages/jobs.js")).jobsPage },
  { name: "dead", title: "Dead", key: "d", load: async () => (await import("./pages/dead.js")).deadPage },
  { name: "schedules", title: "Schedules", key: "s", load: async () => (await import("./pages/schedules.js")).schedulesPage },
  { name: "workers", title: "Workers", key: "w", load: async () => (await import("./pages/workers.js")).workersPage },
  { name: "operations", title: "Operations", key: "p", load: async () => (await import("./pages/operations.js")).operationsPage },
  { name: "audit", title: "Audit", key: "a", load: async () => (await import("./pages/audit.js")).auditPage },
];

/** @type {PageLoader} */
const loadJob = async () => (await import("./pages/job.js")).jobPage;

/** The loader of the page of an address; null if there is none. @param {Place} place @returns {PageLoader | null} */
export function pageOf({ parts: [first = "", id] }) {
  if (first === "jobs" && id) return loadJob;
  return (!id && VIEWS.find((view) => view.name === first)?.load) || null;
}

/**
 * The types of the front end, for the check with `tsc`. This file is not served.
 *
 * 1. Parts of the front end that modules pass to each other.
 * 2. Answers of the HTTP API, as far as the front end reads them.
 */

type Scalar = string | number | boolean | null | undefined;
type Maybe<T> = T | null | undefined;
type Handlers = { [event: string]: (event: any) => void };
type Props = { key?: string; on?: Handlers; [name: string]: Scalar | Handlers };
type Tree = { tag: string; key: string | undefined; props: Props; children: Described[] };
type Described = Tree | string;
type Child = Described | Scalar | Child[];

type Api = import("./static/api.js").Api;
type JsonNumber = import("./static/json.js").JsonNumber;
type Health = "ok" | "unreachable" | "engine-away" | "slow" | "logged-out";
type Query = { [name: string]: string | number | null | undefined };
type FieldProblem = { path: string; detail: string };
type Timer = ReturnType<typeof setTimeout> | undefined;
type Place = { parts: string[]; query: { [name: string]: string } };
type Shortcut = { keys: string; text: string; run: () => void };

type Context = {
  api: Api;
  place: Place;
  me: Me;
  stats: Stats | null;
  recent: import("./static/rates.js").Recent;
  now: number;
  /** What a page keeps between two draws. */
  local: { [name: string]: any };
  act: (action: Action) => void;
  /** Show a short message. */
  tell: (text: string) => void;
  /** Whether the server is known not to answer. */
  isAway: () => boolean;
  draw: () => void;
  reload: () => void;
};
type Page = {
  title: (place: Place) => string;
  everyMs: number;
  load: (context: Context, signal: AbortSignal) => Promise<any>;
  render: (data: any, context: Context) => Child;
  /** The names of the list in the data, and of the key of its rows, which keep their place. */
  list?: { rows: string; key: string };
};
type PageLoader = () => Promise<Page>;
type MenuView = { name: string; title: string; key: string; load: PageLoader };
type Kind = "" | "number" | "time" | "wide" | "wide number" | "wide time" | "fixed" | "wide fixed" | "actions" | "text" | "check";
type Column<Row> = [title: string, kind: Kind, cell: (row: Row) => Child];

type BulkVerb = "retry" | "discard" | "cancel";
type Values = { [name: string]: string };
type Field = {
  name: string;
  label: string;
  value: string;
  rows?: number;
  /** What is wrong with a text, or null. */
  check: (text: string) => string | null;
};
type ActionRequest = { method: string; path: string; body?: string };
type Done = { text: string; href?: string };
type Action = {
  title: string;
  label: string;
  explain: string;
  isDanger?: boolean;
  /** What must be typed to confirm. */
  typed?: string;
  fields?: Field[];
  request: (values: Values) => ActionRequest;
  /** The arguments of the equal `windlass` command; null if there is none. */
  command: (values: Values) => string[] | null;
  preview?: (api: Api, signal: AbortSignal) => Promise<string>;
  done?: (answer: any) => Done;
};

type Span = { label: string; seconds: number; step: "minute" | "hour"; everyMs: number };
type Series = [name: string, tone: string, values: (number | null)[]];
type ChartOptions = {
  title: string;
  /** `s` for durations; counts otherwise. */
  unit?: "s";
  times: number[];
  series: Series[];
  /** The index under the pointer. */
  at: number | null;
  onPoint: (index: number | null) => void;
  /** Whether the table of values is shown. */
  isOpen: boolean;
  onOpen: (isOpen: boolean) => void;
};
type TaskSummary = {
  task: string;
  runs: number;
  failed: number;
  share: number | null;
  p50: number | null;
  p99: number | null;
  wait50: number | null;
  wait: number | null;
};

type Numbers = { [name: string]: number };
type Me = {
  name: string;
  role: string;
  queues: string[];
  rights: string[];
  may_change: boolean;
  logged_in: boolean;
  version: string;
  engine: string | null;
};
type QueueCounts = { jobs: Numbers; oldest_ready_s: number | null };
type Stats = { queues: { [name: string]: QueueCounts }; jobs: Numbers; totals: Numbers | null };
type Queue = QueueCounts & { name: string; paused: boolean; max_waiting: number | null };
type QueueScale = {
  queue: string;
  in_rate: number;
  out_rate: number;
  drain_s: number | null;
  paused: boolean;
  held: boolean;
};
type Scale = { drain_s: number | null; demand_slots: number; queues: QueueScale[] };
type Alert = {
  rule: string;
  kind: string;
  state: string;
  subject: string;
  value: number;
  threshold: number;
  since: string | null;
};
type HistoryRow = {
  at: string;
  task: string;
  enqueued: number;
  outcomes: Numbers;
  wait_p50_s: number | null;
  wait_p99_s: number | null;
  run_p50_s: number | null;
  run_p99_s: number | null;
};
type Depth = { at: string; ready: number; scheduled: number; running: number };
type JobHistory = { rows: HistoryRow[]; depths: Depth[]; end: string; isCut: boolean };
type Overview = {
  scale: Scale;
  workers: WorkerInfo[];
  hasMoreWorkers: boolean;
  alerts: Alert[];
  history: JobHistory;
};
type JobError = { type: string; message: string; traceback: string };
type JobSummary = {
  id: string;
  task: string;
  queue: string;
  state: string;
  hold: string;
  attempts: number;
  enqueued_at: string;
  due_at: string | null;
  started_at: string | null;
  finished_at: string | null;
  cancel_requested: boolean;
};
type JobPage = { jobs: JobSummary[]; cursor: string | null };
type HistoryEntry = {
  attempt: number;
  event: string;
  started_at: string | null;
  ended_at: string;
  worker: string | null;
  release: string | null;
  error: JobError | null;
  replaced: { args: any[]; kwargs: object; problem: string | null } | null;
};
type Progress = { value: number | JsonNumber; message: string };
type Job = JobSummary & {
  requires: string[];
  priority: number;
  reason: string | null;
  expires_at: string | null;
  worker: string | null;
  release: string | null;
  args: any[];
  kwargs: object;
  problem: string | null;
  headers: { [name: string]: string };
  crashes: number;
  losses: number;
  interruptions: number;
  snoozes: number;
  held_because: string | null;
  why: Why | null;
  progress: Progress | null;
  log: { at: string; message: string }[];
  error: JobError | null;
  fingerprint: string | null;
  has_result: boolean;
  history: HistoryEntry[];
};
type Why = {
  id: string;
  state: string;
  holds: { kind: string; text: string; command: string | null; at: string | null; by: string | null }[];
  ahead: number | null;
  is_ahead_exact: boolean;
};
type DeadGroup = {
  fingerprint: string;
  task: string;
  count: number;
  first_at: string;
  last_at: string;
  example: string;
  reason: string | null;
  error: JobError | null;
  function: string | null;
  queues: Numbers;
  releases: { release: string | null; count: number; first_at: string; last_at: string }[];
  is_new: boolean | null;
};
type DeadGroups = { groups: DeadGroup[]; is_exact: boolean; releases: { release: string; began_at: string }[] };
type Schedule = {
  name: string;
  timing: string;
  task: string;
  queue: string;
  state: string;
  next_at: string | null;
  upcoming: string[];
  last_at: string | null;
  last_late_s: number | null;
  skipped: number;
  unfinished: string[];
};
type Schedules = { schedules: Schedule[]; after: string | null };
type RunningJob = { id: string; task: string; queue: string; attempt: number; started_at: string | null };
type Session = {
  session: string;
  pid: number;
  slots: number;
  jobs: number;
  running: RunningJob[];
  command: string;
  expires_in_s: number;
  is_silent: boolean;
};
type WorkerInfo = {
  name: string;
  kind: string;
  state: string;
  app: string;
  version: string;
  queues: string[];
  labels: string[];
  started_at: string | null;
  slots: number;
  jobs: number;
  release: string | null;
  least_children: number;
  most_children: number;
  session_count: number;
  sessions: Session[];
};
type Workers = { workers: WorkerInfo[]; after: string | null };
type LostSession = {
  session: string;
  kind: string;
  cause: string;
  at: string;
  worker: string;
  app: string;
  release: string | null;
  job_count: number;
  jobs: { id: string; task: string; queue: string; is_suspect: boolean; state: string | null }[];
};
type Suspect = {
  id: string;
  task: string;
  queue: string;
  state: string;
  reason: string | null;
  crashes: number;
  losses: number;
  at: string | null;
};
type Lost = { sessions: LostSession[]; suspects: Suspect[]; is_exact: boolean; dead: Suspect[] };
type Operation = {
  id: string;
  action: string;
  state: string;
  filter: { [name: string]: any };
  actor: string;
  rate: number | null;
  total: number | null;
  done: number;
  refused: number;
  failed: number;
  stop_after: number;
  failed_again: number;
  created_at: string;
  reason: string | null;
  error: string | null;
};
type Operations = { operations: Operation[]; after: string | null };
type AuditEntry = {
  id: string;
  at: string;
  actor: string;
  action: string;
  subject: string;
  details: object;
  outcome: string;
};
type AuditPage = { entries: AuditEntry[]; before: string | null };

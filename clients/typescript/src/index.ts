/**
 * The control flag of one agent session, as `otel-loopguard serve` keeps it. No dependencies.
 *
 * Speaks two operations of the server's OpenAPI document (`GET /v1/openapi.json`):
 * `control_by_query` and `control_of_call_by_query`.
 */

export type Action = "allow" | "hint" | "steer" | "ask" | "deny" | "pause" | "abort";

/** What the runtime of a session should do, at this moment. */
export interface Control {
  session: string;
  action: Action;
  /** Whether the action is deny, pause or abort. */
  stops: boolean;
  /** Why, in a sentence without content of the calls; null for allow. */
  reason: string | null;
  /** What to tell the model, ready for its next messages; null for allow. */
  hint: string | null;
  /** `policy`, or the name of the person who set it. */
  by: string | null;
  /** When it ends by itself, nanoseconds since the epoch. */
  until: number | null;
  decision: {
    id: string;
    detector: string;
    rule: string;
    message: string;
    tool: string | null;
    step: number;
    count: number;
    confidence: number;
    shadow: boolean;
  } | null;
  /** What keeps the session from being guarded well, for who runs the agent. */
  warning?: string | null;
  /** Another one after every change. */
  version: string;
}

export interface Options {
  /** Key of the session: the conversation id of its spans, else their trace id in hex. */
  session: string;
  /** Address of the server; default: `LOOPGUARD_URL`, else `http://127.0.0.1:4318`. */
  url?: string;
  /** Bearer token of the tenant; default: `LOOPGUARD_TOKEN`. */
  token?: string;
  /** Milliseconds that a question may take; then everything is allowed. Default 2000. */
  timeoutMs?: number;
  /** Milliseconds that `gate` waits for a paused session. Default 60000. */
  pauseLimitMs?: number;
  /** Called with what goes wrong, once per kind. Default: `console.warn`. */
  onProblem?: (message: string) => void;
  fetch?: typeof globalThis.fetch;
}

/** The session was aborted, or stayed paused for too long. */
export class LoopGuardStop extends Error {
  override name = "LoopGuardStop";
  constructor(readonly control: Control) {
    super(`${control.reason} (session ${control.session} ${control.action === "pause" ? "paused" : "aborted"})`);
  }
}

/** The host of an address, which may hold a password beside it. */
function hostOf(url: string): string {
  return URL.canParse(url) ? new URL(url).host : "the address of the server";
}

/** What went wrong; of `fetch` only the cause says it: no connection, no such name, no certificate that is trusted. */
function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const cause = error.cause as { code?: unknown; message?: unknown } | undefined;
  const why = cause?.code ?? cause?.message;
  return why ? `${error.message}: ${why}` : error.message;
}

const WAIT_S = 30;
const RETRY_MS = 1_000;
/** Milliseconds without an answer after which a pause holds nobody: longer than a server's restart. */
const PATIENCE_MS = 30_000;
/** Milliseconds until the next question after an answer that came before its time. */
const EARLY_MS = 100;
const MOST_TOLD = 100;
/** Characters of an answer that are read: a control has a few hundred, another program may go on without end. */
const MOST_READ = 2 ** 20;
/** The most that timers take; they throw, or fire at once, for more. */
const MOST_MS = 2 ** 31 - 1;

/**
 * Follows the control flag of one session. A server that cannot be reached stops nobody, but an
 * abort that is known stays.
 *
 *     const control = new LoopGuardControl({ session: conversationId });
 *     for (;;) {
 *       await control.check();                      // throws LoopGuardStop after an abort
 *       const hint = await control.hint();          // once per decision
 *       if (hint) messages.push({ role: "user", content: hint });
 *       ...
 *     }
 */
export class LoopGuardControl {
  readonly session: string;
  #known: Control;
  #url: string;
  #headers: Record<string, string>;
  #options: Options;
  #told = new Set<string>();
  #hinted: string | null = null;
  #stop = new AbortController();
  #closed = new AbortController();
  #following = false;

  constructor(options: Options) {
    const env: Record<string, string | undefined> =
      (globalThis as { process?: { env: Record<string, string | undefined> } }).process?.env ?? {};
    const base = options.url ?? (env["LOOPGUARD_URL"] || "http://127.0.0.1:4318"); // an empty one is none
    const token = options.token ?? env["LOOPGUARD_TOKEN"];
    if (!options.session) throw new TypeError("LoopGuardControl needs the key of a session: { session: … }");
    for (const name of ["timeoutMs", "pauseLimitMs"] as const) {
      const ms = options[name] ?? 0;
      if (!(ms >= 0)) throw new RangeError(`LoopGuardControl: ${name} is ${ms}, expected milliseconds from 0`);
    }
    this.session = options.session;
    this.#options = options;
    // Half a surrogate pair, as where a text was cut, cannot be encoded; exporters write U+FFFD for it, too.
    const id = encodeURIComponent(String(options.session).replace(/\p{Surrogate}/gu, "\ufffd"));
    this.#url = `${base.replace(/\/+$/, "")}/v1/session/control?id=${id}`;
    this.#headers = token ? { authorization: `Bearer ${token}` } : {};
    this.#known = allowed(options.session);
  }

  /** The control that is known, without asking. */
  get current(): Control {
    return this.#known;
  }

  /** Asks for the control; where the server does not answer in time, everything is allowed. */
  async refresh(): Promise<Control> {
    if (!(await this.#ask("", this.#limit()))) this.#lift();
    return this.#known;
  }

  /** Asks, and ends the run where it is aborted: call it once per step of the agent's loop. */
  async check(): Promise<Control> {
    const control = await this.refresh();
    if (control.action === "abort") throw new LoopGuardStop(control);
    return control;
  }

  /** As `check`, and waits while the session is paused. */
  async gate(): Promise<Control> {
    const until = Date.now() + (this.#options.pauseLimitMs ?? 60_000);
    let control = await this.check();
    let heard = Date.now();
    while (control.action === "pause") {
      const left = until - Date.now();
      if (left <= 0) throw new LoopGuardStop(control);
      const wait = Math.min(WAIT_S, Math.ceil(left / 1_000));
      const early = Date.now() + EARLY_MS;
      const asked = await this.#ask(`&wait=${wait}&since=${control.version}`, AbortSignal.timeout(wait * 1_000 + 5_000));
      control = this.#known;
      if (control.action === "abort") throw new LoopGuardStop(control);
      if (asked) heard = Date.now();
      else if (Date.now() - heard > PATIENCE_MS) return this.#lift();
      if (!asked) await pause(Math.min(RETRY_MS, left));
      else if (control.action === "pause" && Date.now() < early) await pause(EARLY_MS);
    }
    return control;
  }

  /** What to tell the model, given once per decision; undefined if there is nothing new to say. */
  async hint(): Promise<string | undefined> {
    const { hint, version } = await this.refresh();
    if (hint === null || version === this.#hinted) return undefined;
    this.#hinted = version;
    return hint;
  }

  /**
   * What refuses a call: each one is where the session stops, those of the loop where it is denied. Of a
   * call whose arguments are not given, the tool of the loop tells.
   */
  async refuses(tool: string, args?: unknown): Promise<Control | undefined> {
    const control = (await this.#asked("", this.#limit(), written(tool, args))) ?? this.#lift();
    return control.stops ? control : undefined;
  }

  /** A signal that fires when the session is aborted, for `fetch` and model calls. Follows the flag until `close`. */
  abortSignal(): AbortSignal {
    if (!this.#following) {
      this.#following = true;
      void this.#follow();
    }
    return this.#stop.signal;
  }

  /** Stops following the flag. */
  close(): void {
    this.#closed.abort();
  }

  async #follow(): Promise<void> {
    let version = "none";
    while (!this.#closed.signal.aborted && !this.#stop.signal.aborted) {
      const early = Date.now() + EARLY_MS;
      const limit = AbortSignal.any([this.#closed.signal, AbortSignal.timeout((WAIT_S + 5) * 1_000)]);
      const asked = await this.#ask(`&wait=${WAIT_S}&since=${version}`, limit);
      if (!asked) await pause(RETRY_MS, false);
      else if (Date.now() < early) await pause(EARLY_MS);
      version = this.#known.version || "none";
    }
  }

  #limit(): AbortSignal {
    return AbortSignal.timeout(Math.min(Math.ceil(this.#options.timeoutMs ?? 2_000), MOST_MS));
  }

  async #ask(query: string, signal: AbortSignal): Promise<boolean> {
    const found = await this.#asked(query, signal);
    this.#known = found ?? this.#known;
    return found !== undefined;
  }

  async #asked(query: string, signal: AbortSignal, call?: string): Promise<Control | undefined> {
    const asks = call === undefined ? {} : { method: "POST", body: call };
    const headers = call === undefined ? this.#headers : { ...this.#headers, "content-type": "application/json" };
    try {
      const answer = await (this.#options.fetch ?? fetch)(this.#url + query, { ...asks, headers, signal });
      const token = answer.status === 401 ? ", as it takes no such token (LOOPGUARD_TOKEN)" : "";
      if (!answer.ok) throw new Error(`the server answered ${answer.status}${token}`);
      const found = await jsonOf(answer);
      if (!isControl(found)) throw new Error("the answer is no control of a session");
      if (typeof found.warning === "string") this.#tell("warning", found.warning);
      if (found.action === "abort") {
        this.#known = found;
        if (!this.#stop.signal.aborted) this.#stop.abort(new LoopGuardStop(found));
      }
      return found;
    } catch (error) {
      if (!this.#closed.signal.aborted) {
        const message = reasonOf(error);
        this.#tell(message, `${hostOf(this.#url)}: ${message}; the run goes on unguarded until that is mended`);
      }
      return undefined;
    }
  }

  /** Allows everything, unless the session is aborted. */
  #lift(): Control {
    if (this.#known.action !== "abort") this.#known = allowed(this.session);
    return this.#known;
  }

  #tell(kind: string, text: string): void {
    if (this.#told.has(kind) || this.#told.size >= MOST_TOLD) return;
    this.#told.add(kind);
    const say = this.#options.onProblem ?? ((text: string) => console.warn(text));
    // What the text quotes may be anything.
    const said = `otel-loopguard: ${text.replace(/[\u0000-\u001f\u007f-\u009f]/g, " ")}`;
    // What throws here would end the run, or Node.
    new Promise((resolve) => resolve(say(said))).catch(() => {});
  }
}

function allowed(session: string): Control {
  return {
    session, action: "allow", stops: false, reason: null, hint: null, by: null, until: null,
    decision: null, version: "",
  };
}

/** A call as it is asked about; what cannot be written, as a cycle, is left out. */
function written(tool: string, args: unknown): string {
  try {
    return JSON.stringify({ tool, arguments: args });
  } catch {
    return JSON.stringify({ tool });
  }
}

/** The JSON of an answer. */
async function jsonOf(answer: Response): Promise<unknown> {
  const reader = answer.body?.getReader();
  const decoder = new TextDecoder();
  let text = "";
  for (let part = await reader?.read(); part?.value; part = await reader?.read()) {
    text += decoder.decode(part.value, { stream: true });
    if (text.length <= MOST_READ) continue;
    await reader?.cancel();
    throw new Error("the answer is no control of a session");
  }
  return JSON.parse(text + decoder.decode());
}

/** Whether this is a control: another program may answer at the address, with any JSON. */
function isControl(found: unknown): found is Control {
  if (typeof found !== "object" || found === null) return false;
  const { action, version, stops, hint, decision } = found as Partial<Control>;
  const texts = [action, version].every((each) => typeof each === "string");
  const said = hint === null || typeof hint === "string";
  return texts && said && typeof stops === "boolean" && typeof decision === "object";
}

/** A timer; one that does not hold lets the process end meanwhile. */
function pause(ms: number, holds = true): Promise<void> {
  return new Promise((resolve) => {
    const timer: unknown = setTimeout(resolve, ms);
    if (!holds) (timer as { unref?: () => void }).unref?.();
  });
}

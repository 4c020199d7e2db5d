// One websocket to the service: opened, opened again after each loss, refused with a reason.
import { Emitter } from "./emitter.ts";
import type { ClientEvent, ServerEvent } from "./events.ts";

/** Constructor of websockets, of a browser or of Node's package `ws`. */
type Sockets = new (url: string, protocols: string[]) => WebSocket;

export interface LinkOptions {
  /** Address of the service: `http://127.0.0.1:8080`. */
  url: string;
  key?: string;
  /** Session to go on with. Without one a new session begins. */
  session?: string;
  /** Preset or persona of a new session. */
  model?: string;
  /** True: nothing of a new session is remembered. */
  private?: boolean;
  /** For Node before 22, which has no websockets of its own: the one of the package `ws`. */
  WebSocket?: unknown;
  /** Milliseconds before the first and at most before a later attempt to connect again. */
  retry_ms?: [first: number, most: number];
}

export type LinkState = "connecting" | "open" | "waiting" | "refused" | "closed";

/** Reason why the service does not take the connection. */
export interface Refusal {
  /** HTTP status: 401 without a right key, 403 for a key that may not talk, 404 for a session that is not there. */
  status: number;
  message: string;
}

interface LinkEvents {
  state: LinkState;
  event: ServerEvent;
  refused: Refusal;
}

/** Keys that a browser takes as a sub-protocol. With another one, the service gives a secret of ten minutes. */
const IS_TOKEN = /^[\w!#$%&'*+.^`|~-]+$/;

/** Statuses after which another attempt with the same key and session would be refused, too. */
const FINAL = [400, 401, 403, 404];

export class Link extends Emitter<LinkEvents> {
  state: LinkState = "closed";
  refusal?: Refusal;
  /** Session of the connection, once the service has told it. */
  session?: string;
  private socket?: WebSocket;
  private attempt = 0;
  private timer?: ReturnType<typeof setTimeout>;
  private pause_ms: number;

  constructor(
    readonly options: LinkOptions,
    /** Last item that the client has whole; the service tells the later ones. */
    private readonly after: () => string | undefined = () => undefined,
  ) {
    super();
    this.session = options.session;
    this.pause_ms = this.retry_ms[0];
  }

  connect(): void {
    this.close();
    this.enter("connecting");
    const { key } = this.options;
    if (!key || IS_TOKEN.test(key)) return this.dial(key);
    const attempt = this.attempt;
    void this.secret(key).then((secret) => {
      if (attempt !== this.attempt) return;
      if (secret) this.dial(secret);
      else void this.ask();
    });
  }

  private dial(key?: string): void {
    const { url, model } = this.options;
    const address = new URL("/v1/realtime?extensions=reprise", url.replace(/^http/, "ws"));
    const asked = { session: this.session, after: this.session && this.after(), model: this.session ? undefined : model };
    for (const [name, value] of Object.entries(asked)) if (value) address.searchParams.set(name, value);
    if (this.options.private && !this.session) address.searchParams.set("private", "true");
    const Sockets = (this.options.WebSocket ?? globalThis.WebSocket) as Sockets;
    const socket = new Sockets(address.href, ["realtime", ...(key ? [`openai-insecure-api-key.${key}`] : [])]);
    this.socket = socket;
    let was_open = false;
    socket.onopen = () => {
      was_open = true;
    };
    socket.onmessage = ({ data }) => this.hear(JSON.parse(String(data)) as ServerEvent);
    // The close that follows says what becomes of it.
    socket.onerror = () => {};
    socket.onclose = () => {
      if (this.socket !== socket) return;
      this.socket = undefined;
      if (was_open) this.wait();
      else void this.ask();
    };
  }

  /** Sends an event. False while there is no connection: then nothing was sent. */
  send(event: ClientEvent): boolean {
    if (this.state !== "open" || this.socket?.readyState !== 1) return false;
    this.socket.send(JSON.stringify(event));
    return true;
  }

  close(): void {
    clearTimeout(this.timer);
    this.attempt++;
    const socket = this.socket;
    this.socket = undefined;
    socket?.close();
    if (this.state !== "closed") this.enter("closed");
  }

  private hear(event: ServerEvent): void {
    if (event.type === "session.created") {
      this.session = event.session.id;
      this.pause_ms = this.retry_ms[0];
      this.emit("event", event);
      return this.enter("open");
    }
    this.emit("event", event);
  }

  private async secret(key: string): Promise<string | undefined> {
    const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
    const address = new URL("/v1/realtime/client_secrets", this.options.url);
    const answer = await fetch(address, { method: "POST", headers, body: "{}" }).catch(() => null);
    const made = answer?.ok ? ((await answer.json().catch(() => null)) as { value?: string } | null) : null;
    return made?.value;
  }

  /** Asks in another way why the connection was refused: a browser does not tell. */
  private async ask(): Promise<void> {
    const { url, key } = this.options;
    const headers: Record<string, string> = key ? { authorization: `Bearer ${key}` } : {};
    const path = this.session ? `/v1/conversations/${encodeURIComponent(this.session)}` : "/v1/models";
    const attempt = this.attempt;
    const answer = await fetch(new URL(path, url), { headers }).catch(() => null);
    if (attempt !== this.attempt || this.state !== "connecting") return;
    if (!answer || !FINAL.includes(answer.status)) return this.wait();
    const body = (await answer.json().catch(() => null)) as { error?: { message?: string } } | null;
    this.refusal = { status: answer.status, message: body?.error?.message ?? answer.statusText };
    this.enter("refused");
    this.emit("refused", this.refusal);
  }

  private wait(): void {
    this.enter("waiting");
    this.timer = setTimeout(() => this.connect(), this.pause_ms);
    this.pause_ms = Math.min(this.pause_ms * 2, this.retry_ms[1]);
  }

  private enter(state: LinkState): void {
    if (this.state === state) return;
    this.state = state;
    this.emit("state", state);
  }

  private get retry_ms(): [number, number] {
    return this.options.retry_ms ?? [500, 10_000];
  }
}

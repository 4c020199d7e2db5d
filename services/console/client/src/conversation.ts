// A conversation as a client sees it: its items in order, the reply that is being made, its sentences and reports.
import { Emitter } from "./emitter.ts";
import type {
  ClientEvent, CompactionCompleted, CompactionDropped, CompactionFailed, CompactionStarted, ContextUpdated, ErrorBody, ItemView,
  MemoryLearned, MemoryUnsure, ResponseRecallDone, ResponseView, ServerEvent, SessionView, TurnReport,
} from "./events.ts";
import { Link, type LinkOptions, type LinkState, type Refusal } from "./link.ts";

export type ItemStatus = "in_progress" | "completed" | "incomplete";

/** A sentence of a reply. Offsets count Unicode scalar values of the item's text. */
export interface Sentence {
  item_id: string;
  response_id: string;
  index: number;
  text: string;
  start: number;
  end: number;
}

export interface Item {
  id: string;
  kind: "message" | "call" | "output";
  role: "user" | "assistant" | "system" | "tool";
  text: string;
  status: ItemStatus;
  speaker?: string;
  /** Tool and id of a call. */
  name?: string;
  call_id?: string;
  response_id?: string;
  /** What the model thought before these words. The service does not keep it. */
  reasoning?: string;
  sentences: Sentence[];
  report?: TurnReport;
}

/** Reply that is being made. */
export interface Reply {
  response_id: string;
  item_id?: string;
  reasoning: string;
}

export type Compaction = CompactionStarted | CompactionCompleted | CompactionDropped | CompactionFailed;

export interface ConversationEvents {
  /** Something of what a screen shows has changed. */
  change: undefined;
  state: LinkState;
  /** The connection is open, and nothing has been sent over it yet. */
  open: undefined;
  refused: Refusal;
  session: SessionView;
  delta: { item_id: string; text: string };
  sentence: Sentence;
  reply: Reply;
  done: ResponseView;
  report: TurnReport;
  window: ContextUpdated;
  compaction: Compaction;
  recall: ResponseRecallDone;
  learned: MemoryLearned;
  unsure: MemoryUnsure;
  /** Words that the service refused. They are in no conversation. */
  unsaid: string;
  error: ErrorBody;
  /** Every event, for what this class does not know. */
  event: ServerEvent;
}

/** Messages that wait for a connection. A person does not say more before they notice. */
const MOST_WAITING = 8;
/** Time in which the service mostly says that it has a message. */
const SLOW_MS = 400;
/** Time after which a connection that acknowledges nothing is opened again. */
const STUCK_MS = 15_000;

/** Message that the service has not acknowledged. Its id is the client's, so that the service takes it once. */
interface Unacknowledged {
  id: string;
  text: string;
  sent_at?: number;
}

function new_id(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return `item_${[...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

export class Conversation extends Emitter<ConversationEvents> {
  readonly link: Link;
  items: Item[] = [];
  session?: SessionView;
  reply?: Reply;
  window?: ContextUpdated;
  /** User's speech so far, as it was sent. */
  partial = "";
  private waiting: Unacknowledged[] = [];
  private watch?: ReturnType<typeof setTimeout>;
  /** Newest message that asked for a reply. */
  private asked_by?: string;
  private responses = new Map<string, { items: string[]; reasoning: string; is_over?: boolean; is_reported?: boolean }>();

  constructor(options: LinkOptions) {
    super();
    this.link = new Link(options, () => this.last_whole());
    this.link.on("event", (event) => this.hear_event(event));
    this.link.on("state", (state) => this.entered(state));
    this.link.on("refused", (refusal) => this.emit("refused", refusal));
  }

  get state(): LinkState {
    return this.link.state;
  }

  get id(): string | undefined {
    return this.link.session;
  }

  connect(): void {
    this.link.connect();
  }

  close(): void {
    this.link.close();
  }

  send(event: ClientEvent): boolean {
    return this.link.send(event);
  }

  /** Says what the user has said so far, so that the reply can begin before they end. */
  hear(partial: string): void {
    if (partial === this.partial) return;
    this.partial = partial;
    this.send(partial ? { type: "input_text_buffer.update", text: partial } : { type: "input_text_buffer.clear" });
    this.emit("change", undefined);
  }

  /** Says a whole message and asks for the reply. `heard`: characters that were heard of the reply that it interrupts, the last
   * one or `item_id`. False: too many messages wait for the connection, and this one was not said. */
  say(text: string, heard?: number, item_id?: string): boolean {
    if (this.waiting.length >= MOST_WAITING) return false;
    this.interrupt(heard, item_id);
    this.partial = "";
    this.waiting = [...this.waiting, { id: new_id(), text }];
    if (this.state === "open") this.commit(this.waiting.slice(-1));
    else if (this.state === "closed") this.connect();
    this.emit("change", undefined);
    return true;
  }

  /** Messages that the service does not have, as far as is known. They are sent again when there is a connection. */
  get unsent(): readonly string[] {
    const is_late = ({ sent_at }: Unacknowledged) => this.state !== "open" || sent_at === undefined || Date.now() - sent_at >= SLOW_MS;
    return this.waiting.filter(is_late).map(({ text }) => text);
  }

  /** Takes back what the service does not have, and returns its words. */
  take_back(): string[] {
    const words = this.waiting.map(({ text }) => text);
    this.waiting = [];
    clearTimeout(this.watch);
    return words;
  }

  /** True until the service has everything that was said. */
  get is_waiting(): boolean {
    return this.waiting.length > 0;
  }

  /** Stops the reply. `heard`: characters that were heard of the last one, or of `item_id`; the conversation goes on from there. */
  interrupt(heard?: number, item_id?: string): void {
    const last = this.items.findLast((item) => item.role === "assistant" && item.kind === "message" && item.id === (item_id ?? item.id));
    // The reply to a message that is on its way may have begun.
    if (this.reply || this.waiting.some(({ sent_at }) => sent_at !== undefined)) this.send({ type: "response.cancel" });
    if (heard !== undefined && last && heard < [...last.text].length) {
      this.send({ type: "conversation.item.truncate", item_id: last.id, content_index: 0, text_end: heard });
    }
  }

  /** Goes on with the reply that was stopped, as if nothing had interrupted it. False without a connection. */
  resume(): boolean {
    return this.send({ type: "response.resume" });
  }

  stop_thinking(): void {
    this.send({ type: "response.stop_thinking" });
  }

  /** Asks again for the reply to the last message. False without a connection: then nothing has changed. */
  regenerate(): boolean {
    const from = this.items.findLastIndex((item) => item.role === "user");
    if (from < 0 || this.state !== "open") return false;
    this.interrupt();
    this.remove(this.items.slice(from + 1));
    return this.send({ type: "response.create" });
  }

  /** Says something else in the place of a message, and leaves what came behind it. False without a connection: what is to be
   * left would stay, so nothing has changed. */
  edit(item_id: string, text: string): boolean {
    const from = this.items.findIndex((item) => item.id === item_id);
    if (from < 0 || this.state !== "open") return false;
    this.interrupt();
    this.remove(this.items.slice(from));
    return this.say(text);
  }

  private remove(items: Item[]): void {
    for (const { id } of items) this.send({ type: "conversation.item.delete", item_id: id });
  }

  private last_whole(): string | undefined {
    return this.items.findLast((item) => item.status === "completed")?.id;
  }

  private entered(state: LinkState): void {
    if (state === "open") {
      this.emit("open", undefined);
      this.commit(this.waiting);
    } else {
      this.reply = undefined;
      clearTimeout(this.watch);
    }
    this.emit("state", state);
    this.emit("change", undefined);
  }

  /** Sends messages, of which the last asks for the reply: a reply to one would refuse the next. */
  private commit(messages: Unacknowledged[]): void {
    messages.forEach((message, at) => {
      const { id, text } = message;
      const create_response = at === messages.length - 1;
      if (create_response) this.asked_by = id;
      if (this.send({ type: "input_text_buffer.commit", text, item_id: id, event_id: id, create_response })) message.sent_at = Date.now();
    });
    setTimeout(() => this.waiting.length > 0 && this.emit("change", undefined), SLOW_MS);
    // A network that is gone without a word is noticed by what is not acknowledged.
    clearTimeout(this.watch);
    if (messages.length > 0) this.watch = setTimeout(() => this.connect(), STUCK_MS);
  }

  private acknowledged(message_id: string): void {
    this.waiting = this.waiting.filter(({ id }) => id !== message_id);
    if (this.waiting.length === 0) clearTimeout(this.watch);
  }

  /** Takes an answer to a message that waits. True if its error is none: the service had the message already. */
  private refused({ code, event_id }: ErrorBody): boolean {
    if (code === "conversation_already_has_active_response" && event_id && event_id === this.asked_by) {
      // Another client of the session is being answered: these words interrupt it.
      this.send({ type: "response.cancel" });
      return this.send({ type: "response.create" });
    }
    const message = this.waiting.find(({ id }) => id === event_id);
    if (!message) return false;
    this.acknowledged(message.id);
    if (code === "item_create_duplicate_item_id") return true;
    this.emit("unsaid", message.text);
    return false;
  }

  private hear_event(event: ServerEvent): void {
    this.take(event);
    this.emit("event", event);
    this.emit("change", undefined);
  }

  private take(event: ServerEvent): void {
    switch (event.type) {
      case "session.created":
      case "session.updated":
        this.session = event.session;
        return this.emit("session", event.session);
      case "conversation.item.added":
      case "conversation.item.done":
        return this.put(event.item, event.previous_item_id);
      case "conversation.item.deleted":
        this.items = this.items.filter((item) => item.id !== event.item_id);
        return;
      case "conversation.item.truncated": {
        const { item_id, text_end } = event;
        const cut = (text: string) => [...text].slice(0, text_end).join("");
        return this.change(item_id, (item) => ({ ...item, text: cut(item.text), status: "incomplete" }));
      }
      case "response.created":
        // A response beside the conversation is no reply to the user.
        if (event.response.conversation_id === null) return;
        this.responses.set(event.response.id, { items: [], reasoning: "" });
        this.reply = { response_id: event.response.id, reasoning: "" };
        return this.emit("reply", this.reply);
      case "response.output_item.added":
        return this.begin(event.response_id, event.item);
      case "response.output_item.done":
        return this.finish(event.item);
      case "response.reasoning.delta":
        return this.think(event.response_id, event.delta);
      case "conversation.item.input_audio_transcription.completed":
        return this.change(event.item_id, (item) => ({ ...item, text: event.transcript }));
      case "response.output_audio_transcript.delta":
      case "response.output_text.delta":
        this.change(event.item_id, (item) => ({ ...item, text: item.text + event.delta }));
        return this.emit("delta", { item_id: event.item_id, text: event.delta });
      case "response.function_call_arguments.delta":
        return this.change(event.item_id, (item) => ({ ...item, text: item.text + event.delta }));
      case "response.sentence.done": {
        const { item_id, response_id, index, text, text_start: start, text_end: end } = event;
        const sentence: Sentence = { item_id, response_id, index, text, start, end };
        // To a client that comes back, the sentences of a reply in progress are told again.
        const said = this.items.find((item) => item.id === item_id)?.sentences.some((other) => other.start === start && other.end === end);
        if (said) return;
        const known = (item: Item) => item.sentences.filter((other) => other.start < start);
        this.change(item_id, (item) => ({ ...item, sentences: [...known(item), sentence] }));
        return this.emit("sentence", sentence);
      }
      case "response.done":
        return this.over(event.response);
      case "turn.report":
        return this.reported(event);
      case "context.updated":
        this.window = event;
        return this.emit("window", event);
      case "compaction.started":
      case "compaction.completed":
      case "compaction.dropped":
      case "compaction.failed":
        return this.emit("compaction", event);
      case "response.recall.done":
        return this.emit("recall", event);
      case "memory.learned":
        return this.emit("learned", event);
      case "memory.unsure":
        return this.emit("unsure", event);
      case "error":
        return this.refused(event.error) ? undefined : this.emit("error", event.error);
    }
  }

  private begin(response_id: string, item: ItemView): void {
    const response = this.responses.get(response_id);
    if (!response) return;
    response.items.push(item.id);
    if (this.reply?.response_id === response_id && item.type === "message") this.reply.item_id = item.id;
    const told = (known: Item) => (known.response_id === response_id ? known.sentences : []);
    this.change(item.id, (known) => ({ ...this.read(item, response_id), sentences: told(known) }));
  }

  private finish(item: ItemView): void {
    this.change(item.id, (known) => ({ ...known, ...this.read(item, known.response_id), sentences: known.sentences }));
  }

  private think(response_id: string, delta: string): void {
    const response = this.responses.get(response_id);
    if (!response) return;
    response.reasoning += delta;
    if (this.reply?.response_id === response_id) this.reply = { ...this.reply, reasoning: response.reasoning };
  }

  private over(response: ResponseView): void {
    const known = this.responses.get(response.id);
    if (!known) return;
    const status: ItemStatus = response.status === "completed" ? "completed" : "incomplete";
    for (const id of known.items) {
      this.change(id, (item) => (item.status === "in_progress" ? { ...item, status } : item));
    }
    if (this.reply?.response_id === response.id) this.reply = undefined;
    known.is_over = true;
    if (known.is_reported) this.responses.delete(response.id);
    this.emit("done", response);
  }

  private reported(report: TurnReport): void {
    const known = this.responses.get(report.response_id);
    const last = known?.items.at(-1);
    if (last) this.change(last, (item) => ({ ...item, report }));
    // A spoken reply is reported when it is made, and over when it is said.
    if (known?.is_over) this.responses.delete(report.response_id);
    else if (known) known.is_reported = true;
    this.emit("report", report);
  }

  private put(view: ItemView, previous: string | null): void {
    this.acknowledged(view.id);
    const at = this.items.findIndex((item) => item.id === view.id);
    const response_id = [...this.responses].find(([, response]) => response.items.includes(view.id))?.[0];
    const known = this.items[at];
    const item = this.read(view, response_id ?? known?.response_id);
    if (known) {
      // An item that is told again while it is being said has not lost its words.
      const text = item.text || known.text;
      this.items = this.items.with(at, { ...known, ...item, text, sentences: known.sentences });
      return;
    }
    const before = previous === null ? -1 : this.items.findIndex((other) => other.id === previous);
    const place = previous !== null && before < 0 ? this.items.length : before + 1;
    this.items = this.items.toSpliced(place, 0, item);
  }

  private read(view: ItemView, response_id?: string): Item {
    const { id, status } = view;
    const reasoning = response_id ? this.responses.get(response_id)?.reasoning || undefined : undefined;
    const common = { id, status, response_id, reasoning, sentences: [] };
    switch (view.type) {
      case "message": {
        // What was spoken is shown in its words.
        const text = view.content.map((part) => ("text" in part ? part.text : (part.transcript ?? ""))).join("");
        return { ...common, kind: "message", role: view.role, text, speaker: view.speaker ?? undefined };
      }
      case "function_call":
        return { ...common, kind: "call", role: "assistant", text: view.arguments, name: view.name, call_id: view.call_id };
      case "function_call_output":
        return { ...common, kind: "output", role: "tool", text: view.output, call_id: view.call_id };
    }
  }

  private change(id: string, change: (item: Item) => Item): void {
    const at = this.items.findIndex((item) => item.id === id);
    const known = this.items[at];
    if (known) this.items = this.items.with(at, change(known));
  }
}

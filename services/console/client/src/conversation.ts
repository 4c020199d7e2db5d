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
  error: ErrorBody;
  /** Every event, for what this class does not know. */
  event: ServerEvent;
}

/** Messages that wait for a connection. A person does not say more before they notice. */
const MOST_WAITING = 8;

export class Conversation extends Emitter<ConversationEvents> {
  readonly link: Link;
  items: Item[] = [];
  session?: SessionView;
  reply?: Reply;
  window?: ContextUpdated;
  /** User's speech so far, as it was sent. */
  partial = "";
  private waiting: string[] = [];
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

  /** Says a whole message and asks for the reply. `heard`: characters that were heard of the reply that it interrupts. */
  say(text: string, heard?: number): void {
    this.interrupt(heard);
    this.partial = "";
    if (!this.send({ type: "input_text_buffer.commit", text })) {
      this.waiting = [...this.waiting, text].slice(-MOST_WAITING);
      if (this.state === "closed") this.connect();
    }
    this.emit("change", undefined);
  }

  /** Messages that are sent when there is a connection. */
  get unsent(): readonly string[] {
    return this.waiting;
  }

  /** Stops the reply. `heard`: characters of it that were heard; the conversation goes on from there. */
  interrupt(heard?: number): void {
    const last = this.items.findLast((item) => item.role === "assistant" && item.kind === "message");
    if (this.reply) this.send({ type: "response.cancel" });
    if (heard !== undefined && last && heard < [...last.text].length) {
      this.send({ type: "conversation.item.truncate", item_id: last.id, content_index: 0, text_end: heard });
    }
  }

  /** Goes on with the reply that was stopped, as if nothing had interrupted it. */
  resume(): void {
    this.send({ type: "response.resume" });
  }

  stop_thinking(): void {
    this.send({ type: "response.stop_thinking" });
  }

  /** Asks again for the reply to the last message. */
  regenerate(): void {
    const from = this.items.findLastIndex((item) => item.role === "user");
    if (from < 0) return;
    this.interrupt();
    this.remove(this.items.slice(from + 1));
    this.send({ type: "response.create" });
  }

  /** Says something else in the place of a message, and leaves what came behind it. */
  edit(item_id: string, text: string): void {
    const from = this.items.findIndex((item) => item.id === item_id);
    if (from < 0) return;
    this.interrupt();
    this.remove(this.items.slice(from));
    this.say(text);
  }

  private remove(items: Item[]): void {
    for (const { id } of items) this.send({ type: "conversation.item.delete", item_id: id });
  }

  private last_whole(): string | undefined {
    return this.items.findLast((item) => item.status === "completed")?.id;
  }

  private entered(state: LinkState): void {
    if (state !== "open") this.reply = undefined;
    if (state === "open") {
      this.emit("open", undefined);
      const waiting = this.waiting;
      this.waiting = [];
      for (const text of waiting) this.send({ type: "input_text_buffer.commit", text });
    }
    this.emit("state", state);
    this.emit("change", undefined);
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
        return this.emit("error", event.error);
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

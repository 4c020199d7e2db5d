// What the views share: the service's routes, the conversation that is open, the list of conversations, notices.
import { useEffect, useReducer } from "preact/hooks";
import { Api, ApiError, Conversation, Emitter, type Item, type SessionLine, type TurnNumbers } from "./client.ts";
import { item_of } from "./history.ts";
import * as keep from "./keep.ts";
import { go, place_of, settle } from "./routes.ts";
import { SpokenPage } from "./spoken.ts";
import { suggest_title } from "./titles.ts";
import { BrowserVoice, Speaking } from "./voice.ts";
import { count } from "./words.ts";

export interface Notice {
  id: number;
  text: string;
  kind: "info" | "problem";
}

/** A line between messages. A memory that it tells of can be forgotten there. */
export interface Aside {
  after?: string;
  text: string;
  link?: string;
  memory?: string;
}

/** What was measured and thought of a reply, by its item. */
export interface Mark {
  response_id: string;
  feedback: number;
  first_token_ms?: number | null;
}

export type Gate = "opening" | "open" | "needs_key" | "wrong_key" | "may_not" | "unreachable";

const NOTICE_MS = 7000;
const MOST_PAGES = 20;
const SESSIONS_A_PAGE = 100;

export class State extends Emitter<{ change: undefined; draft: undefined }> {
  api = this.new_api();
  gate: Gate = "opening";
  gate_message = "";
  /** False for a key that may talk only. */
  may_list = true;
  sessions: SessionLine[] = [];
  /** True if there are older conversations than those. */
  has_older = false;
  conversation: Conversation;
  /** Speech of the open conversation over the service's own ears and voice. */
  spoken!: SpokenPage;
  marks = new Map<string, Mark>();
  /** Items of the open conversation as the store has them, also those that a summary tells. */
  history: Item[] = [];
  notices: Notice[] = [];
  /** Lines about the window between messages, by the item before them. */
  asides: Aside[] = [];
  readonly voice = new BrowserVoice();
  readonly speaking = new Speaking(this.voice);
  private next_notice = 1;
  private wants_private = false;
  private pages = 1;
  /** What was typed and not said yet, by its conversation; that of a new one has no name. */
  private readonly drafts = new Map<string, string>();
  /** Conversations that were left with words that the service does not have yet. */
  private readonly left = new Set<Conversation>();

  constructor() {
    super();
    this.conversation = this.new_conversation();
    this.speaking.on("change", () => this.changed());
    globalThis.addEventListener?.("beforeunload", (event) => {
      if (this.conversation.is_waiting || this.left.size > 0) event.preventDefault();
    });
  }

  changed(): void {
    this.emit("change", undefined);
  }

  /** Asks whether the service lets this page in. */
  async open(): Promise<void> {
    this.api = this.new_api();
    const had_key = keep.key() !== undefined;
    try {
      await this.list();
      this.gate = "open";
    } catch (error) {
      this.gate = error instanceof ApiError && error.status === 401 ? (had_key ? "wrong_key" : "needs_key") : "unreachable";
      this.gate_message = error instanceof Error ? error.message : "";
      if (this.gate === "unreachable") setTimeout(() => void this.open(), 3000);
    }
    this.changed();
    if (this.gate !== "open") return;
    const place = place_of(location.hash);
    this.leave_conversation();
    this.conversation = this.new_conversation();
    this.show(place.view === "talk" ? place.of : undefined);
    this.changed();
  }

  enter(key: string, on_device: boolean): void {
    keep.keep_key(key, on_device);
    this.gate = "opening";
    this.changed();
    void this.open();
  }

  leave(): void {
    keep.forget_key();
    this.speaking.stop();
    // With another key these words would be another user's.
    for (const conversation of [this.conversation, ...this.left]) conversation.close();
    this.left.clear();
    this.drafts.clear();
    this.conversation = this.new_conversation();
    [this.sessions, this.marks, this.history, this.asides, this.pages] = [[], new Map(), [], [], 1];
    go({ view: "talk" });
    this.gate = "opening";
    void this.open();
  }

  async list(): Promise<void> {
    try {
      const sessions = new Map<string, SessionLine>();
      let [before, has_older]: [number | undefined, boolean] = [undefined, true];
      for (let page = 0; page < this.pages && has_older; page++) {
        const answer = await this.api.sessions(SESSIONS_A_PAGE, before);
        for (const line of answer.data) sessions.set(line.id, line);
        [before, has_older] = [answer.before ?? undefined, answer.has_more];
      }
      [this.sessions, this.has_older, this.may_list] = [[...sessions.values()], has_older, true];
    } catch (error) {
      if (!(error instanceof ApiError && error.status === 403)) throw error;
      this.may_list = false;
    }
    this.changed();
  }

  refresh = () => void this.list().catch(() => {});

  /** Lists another page of conversations. */
  older(): void {
    this.pages++;
    void this.attempt(this.list());
  }

  /** Opens a session, or a new conversation that begins with the first words. */
  show(session?: string): void {
    if (session === this.conversation.id && (session !== undefined || this.conversation.items.length === 0)) return;
    this.speaking.stop();
    this.leave_conversation();
    [this.marks, this.asides, this.history] = [new Map(), [], []];
    const left = session && [...this.left].find(({ id }) => id === session);
    if (left) this.enter_conversation(left);
    else this.conversation = this.new_conversation(session);
    if (session) {
      if (!left) this.conversation.connect();
      void this.read_history(session);
    }
    this.changed();
  }

  /** Closes the open conversation, once the service has what was said in it. */
  private leave_conversation(): void {
    const { conversation } = this;
    if (!conversation.is_waiting) return conversation.close();
    this.left.add(conversation);
    conversation.on("done", () => {
      if (conversation.is_waiting || !this.left.delete(conversation)) return;
      conversation.close();
      this.refresh();
    });
  }

  private enter_conversation(conversation: Conversation): void {
    this.left.delete(conversation);
    this.conversation = conversation;
    this.speak_in(conversation);
  }

  /** What was typed in the open conversation and not said. */
  get draft(): string {
    return this.drafts.get(this.conversation.id ?? "") ?? "";
  }

  keep_draft(text: string): void {
    const { id, link } = this.conversation;
    // The first letter of a new conversation gave it its name.
    if (id && !link.options.session) this.drafts.delete("");
    if (text) this.drafts.set(id ?? "", text);
    else this.drafts.delete(id ?? "");
  }

  get is_private(): boolean {
    return this.wants_private;
  }

  /** Chooses, before the first words, whether anything of a new conversation is remembered. */
  set_private(is_private: boolean): void {
    this.wants_private = is_private;
    this.conversation.close();
    this.conversation = this.new_conversation();
    this.changed();
  }

  /** Says a message. False if it is not said: the user still has to. */
  say(text: string): boolean {
    const heard = this.speaking.stop();
    this.spoken.hush();
    if (this.conversation.say(text, heard?.chars, heard?.item_id)) return true;
    this.notice("Too much waits for the connection already. This was not said.", "problem");
    return false;
  }

  stop(): void {
    const heard = this.speaking.stop();
    this.conversation.interrupt(heard?.chars, heard?.item_id);
    this.spoken.hush();
  }

  /** Tells where something was not done because there is no connection. */
  changes(is_done: boolean): void {
    if (!is_done) this.notice("There is no connection right now. Nothing was changed.", "problem");
  }

  async thumb(item: string, value: number): Promise<void> {
    const [mark, session] = [this.marks.get(item), this.conversation.id];
    if (!mark || !session) return;
    const before = mark.feedback;
    const set = (feedback: number) => {
      this.marks.set(item, { ...mark, feedback });
      this.changed();
    };
    set(value);
    // What a turn was like is stored right behind its report.
    for (let tries = 0; ; tries++) {
      try {
        return void (await this.api.feedback(session, mark.response_id, value));
      } catch (error) {
        const comes = error instanceof ApiError && error.status === 404 && tries < 10;
        if (!comes) {
          set(before);
          return this.notice("The thumb could not be kept.", "problem");
        }
        await new Promise((done) => setTimeout(done, 200));
      }
    }
  }

  notice(text: string, kind: Notice["kind"] = "info"): void {
    const id = this.next_notice++;
    this.notices = [...this.notices.slice(-3), { id, text, kind }];
    this.changed();
    setTimeout(() => this.dismiss(id), NOTICE_MS);
  }

  dismiss(id: number): void {
    this.notices = this.notices.filter((notice) => notice.id !== id);
    this.changed();
  }

  /** Does what the user asked for; a failure becomes a notice. */
  async attempt<T>(work: Promise<T>, done?: string): Promise<T | undefined> {
    try {
      const result = await work;
      if (done) this.notice(done);
      return result;
    } catch (error) {
      this.notice(error instanceof Error ? sentence(error.message) : "That did not work.", "problem");
      return undefined;
    }
  }

  private new_api(): Api {
    return new Api({ url: location.origin, key: keep.key() });
  }

  private new_conversation(session?: string): Conversation {
    const conversation = new Conversation({ url: location.origin, key: keep.key(), session, private: this.wants_private });
    const is_open = () => conversation === this.conversation;
    this.speak_in(conversation);
    conversation.on("change", () => is_open() && this.changed());
    conversation.on("unsaid", (text) => {
      if (!is_open() || this.draft) return;
      this.keep_draft(text);
      this.emit("draft", undefined);
    });
    conversation.on("event", (event) => {
      if (is_open() && event.type === "conversation.item.deleted") this.history = this.history.filter(({ id }) => id !== event.item_id);
    });
    conversation.on("refused", ({ status, message }) => {
      const words = conversation.take_back().join("\n");
      if (!is_open()) {
        this.left.delete(conversation);
        return words ? this.notice(`This reached no conversation: “${words}”`, "problem") : undefined;
      }
      const typed = this.draft;
      if (status === 404) {
        this.notice("That conversation is not there any more.", "problem");
        settle({ view: "talk" });
        this.show();
      }
      // What was said is typed again, and waits for the user.
      if (typed || words) this.keep_draft([typed, words].filter(Boolean).join("\n"));
      this.emit("draft", undefined);
      if (status === 404) return;
      [this.gate, this.gate_message] = [status === 401 ? "wrong_key" : "may_not", message];
      this.changed();
    });
    conversation.on("session", ({ id }) => {
      const place = place_of(location.hash);
      if (is_open() && place.view === "talk" && place.of !== id) settle({ view: "talk", of: id });
    });
    conversation.on("sentence", (sentence) => {
      if (is_open() && keep.now().speaks && this.voice.speaks && !this.spoken.is_on) this.speaking.say(sentence);
    });
    conversation.on("report", ({ response_id, ms }) => {
      const item = conversation.items.findLast((item) => item.response_id === response_id && item.kind === "message");
      if (item) this.marks.set(item.id, { response_id, feedback: 0, first_token_ms: ms.first_token });
      void this.after_turn(conversation);
    });
    conversation.on("error", ({ code, message }) => {
      if (code !== "response_cancel_not_active") this.notice(sentence(message), "problem");
    });
    conversation.on("done", ({ status, status_details }) => {
      if (status !== "failed") return;
      const why = status_details?.type === "failed" ? status_details.error.message : "the model gave no reason";
      this.notice(`The reply failed: ${why}.`, "problem");
    });
    conversation.on("compaction", (event) => {
      const link = conversation.id && `#/memory/${conversation.id}`;
      if (event.type === "compaction.completed") {
        const [before, after] = [count(event.tokens_before), count(event.tokens_after ?? 0)];
        this.aside(conversation, `Older turns are told by a summary from here on: ${before} tokens became ${after}.`, link);
      } else if (event.type === "compaction.dropped") {
        this.aside(conversation, "The oldest turns left the window. A summary of them is being made.", link);
      } else if (event.type === "compaction.failed") {
        this.aside(conversation, `No summary was made: ${event.message}.`);
      }
    });
    conversation.on("recall", ({ query, places }) => {
      const found = places === 1 ? "one place" : `${places} places`;
      this.aside(conversation, `Looked for “${query}” in all that was said and found ${found}.`);
    });
    conversation.on("learned", ({ memory }) => {
      this.aside(conversation, `Remembered: ${memory.text}`, undefined, memory.id);
    });
    conversation.on("unsure", async ({ memory_id, near }) => {
      const does = memory_id === null ? "forget" : "correct";
      this.aside(conversation, `That may ${does} either of these memories, so both stay:`, "#/people");
      const facts = await Promise.all(near.map((id) => this.api.fact(id).catch(() => undefined)));
      for (const fact of facts) if (fact) this.aside(conversation, fact.text, undefined, fact.id);
    });
    return conversation;
  }

  private speak_in(conversation: Conversation): void {
    this.spoken?.end();
    const spoken = new SpokenPage(conversation);
    spoken.on("change", () => this.spoken === spoken && this.changed());
    this.spoken = spoken;
  }

  /** Forgets a memory that was just learned. */
  async forget(memory: string): Promise<void> {
    if (!(await this.attempt(this.api.forget(memory), "It is forgotten."))) return;
    this.asides = this.asides.filter((aside) => aside.memory !== memory);
    this.changed();
  }

  private aside(conversation: Conversation, text: string, link?: string, memory?: string): void {
    if (conversation !== this.conversation) return;
    this.asides = [...this.asides, { after: conversation.items.at(-1)?.id, text, link, memory }].slice(-50);
    this.changed();
  }

  private async after_turn(conversation: Conversation): Promise<void> {
    await this.list().catch(() => {});
    const line = this.sessions.find((line) => line.id === conversation.id);
    if (line && !line.title && (await suggest_title(this.api, conversation))) this.refresh();
  }

  /** Reads everything that was said, also what a summary tells, and which response each older reply is from. */
  private async read_history(session: string): Promise<void> {
    const is_open = () => this.conversation.id === session;
    try {
      const turns = new Map<string, TurnNumbers>();
      for (const turn of (await this.api.turns(session)).data) if (turn.response_id) turns.set(turn.response_id, turn);
      for (let page = 0, after: string | undefined; page < MOST_PAGES; page++) {
        const { data, has_more } = await this.api.items(session, after);
        if (!is_open()) return;
        this.history = [...this.history, ...data.flatMap((stored) => item_of(stored) ?? [])];
        for (const { item_id, response, body } of data) {
          const turn = response ? turns.get(response) : undefined;
          if (!turn || !response || body.kind !== "message" || this.marks.has(item_id)) continue;
          const { feedback, first_token_ms } = turn;
          this.marks.set(item_id, { response_id: response, feedback: feedback ?? 0, first_token_ms });
        }
        after = data.at(-1)?.item_id;
        if (!has_more) break;
      }
      this.changed();
    } catch {
      // A key that may only talk reads no history; its replies have thumbs while the page is open.
    }
  }
}

/** Gives an error's message the form of a sentence. */
export const sentence = (message: string) => `${message.charAt(0).toUpperCase()}${message.slice(1)}${/[.!?]$/.test(message) ? "" : "."}`;

export const state = new State();

/** Renders a component again whenever something of the state changes. */
export function useShared(): State {
  const [, again] = useReducer((times: number) => times + 1, 0);
  useEffect(() => state.on("change", () => again(undefined)), []);
  return state;
}

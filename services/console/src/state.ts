// What the views share: the service's routes, the conversation that is open, the list of conversations, notices.
import { useEffect, useReducer } from "preact/hooks";
import { Api, ApiError, Conversation, Emitter, type SessionLine, type TurnNumbers } from "./client.ts";
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

export class State extends Emitter<{ change: undefined }> {
  api = this.new_api();
  gate: Gate = "opening";
  gate_message = "";
  /** False for a key that may talk only. */
  may_list = true;
  sessions: SessionLine[] = [];
  conversation: Conversation;
  /** Speech of the open conversation over the service's own ears and voice. */
  spoken!: SpokenPage;
  marks = new Map<string, Mark>();
  notices: Notice[] = [];
  /** Lines about the window between messages, by the item before them. */
  asides: Aside[] = [];
  readonly voice = new BrowserVoice();
  readonly speaking = new Speaking(this.voice);
  private next_notice = 1;
  private wants_private = false;

  constructor() {
    super();
    this.conversation = this.new_conversation();
    this.speaking.on("change", () => this.changed());
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
    this.conversation.close();
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
    this.conversation.close();
    this.conversation = this.new_conversation();
    this.sessions = [];
    go({ view: "talk" });
    this.gate = "opening";
    void this.open();
  }

  async list(): Promise<void> {
    try {
      this.sessions = (await this.api.sessions()).data;
      this.may_list = true;
    } catch (error) {
      if (!(error instanceof ApiError && error.status === 403)) throw error;
      this.may_list = false;
    }
    this.changed();
  }

  refresh = () => void this.list().catch(() => {});

  /** Opens a session, or a new conversation that begins with the first words. */
  show(session?: string): void {
    if (session === this.conversation.id && (session !== undefined || this.conversation.items.length === 0)) return;
    this.speaking.stop();
    this.conversation.close();
    [this.marks, this.asides] = [new Map(), []];
    this.conversation = this.new_conversation(session);
    if (session) {
      this.conversation.connect();
      void this.read_marks(session);
    }
    this.changed();
  }

  get is_private(): boolean {
    return this.wants_private;
  }

  /** Chooses, before the first words, whether anything of a new conversation is remembered. */
  set_private(is_private: boolean): void {
    this.wants_private = is_private;
    this.conversation = this.new_conversation();
    this.changed();
  }

  say(text: string): void {
    const heard = this.speaking.stop();
    this.spoken.hush();
    this.conversation.say(text, heard);
  }

  stop(): void {
    this.conversation.interrupt(this.speaking.stop());
    this.spoken.hush();
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
    if (this.spoken?.is_on) this.spoken.end();
    this.spoken = new SpokenPage(conversation);
    this.spoken.on("change", () => is_open() && this.changed());
    conversation.on("change", () => is_open() && this.changed());
    conversation.on("refused", ({ status, message }) => {
      if (!is_open()) return;
      if (status === 404) {
        this.notice("That conversation is not there any more.", "problem");
        settle({ view: "talk" });
        return this.show();
      }
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

  /** Reads which response each older reply is from, so that it has its thumbs after a reload, too. */
  private async read_marks(session: string): Promise<void> {
    try {
      const turns = new Map<string, TurnNumbers>();
      for (const turn of (await this.api.turns(session)).data) if (turn.response_id) turns.set(turn.response_id, turn);
      for (let page = 0, after: string | undefined; page < MOST_PAGES; page++) {
        const { data, has_more } = await this.api.items(session, after);
        for (const { item_id, response, body } of data) {
          const turn = response ? turns.get(response) : undefined;
          if (!turn || !response || body.kind !== "message") continue;
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

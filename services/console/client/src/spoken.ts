// Speech over the conversation's websocket: audio goes both ways, and the service finds the turns.
import type { Conversation, Sentence } from "./conversation.ts";
import { Emitter } from "./emitter.ts";
import type { ResponseOutputAudioTranscriptDelta, ServerEvent, SessionFields } from "./events.ts";

/** Samples a second of the protocol's audio, one channel of 16 bits. */
export const AUDIO_RATE = 24_000;

/** Reply that was being played, and how much of it was heard. */
export interface Heard {
  item_id: string;
  audio_end_ms: number;
}

/** What plays replies, one piece behind another. */
export interface Player {
  play(item_id: string, samples: Int16Array): void;
  /** Returns undefined if nothing is being played. */
  heard(): Heard | undefined;
  /** Stops, and returns what was heard of what was being played. */
  stop(): Heard | undefined;
}

type Session = Omit<SessionFields, "type">;

/** Turns by hand. Its schema leaves the type open. */
const BY_HAND = null as unknown as undefined;
const TEXT: Session = { output_modalities: ["text"], audio: { input: { turn_detection: BY_HAND } } };

/** The spoken side of a conversation. It keeps only the words that were heard, so it tells the service what was played. */
export class Spoken extends Emitter<{ change: undefined }> {
  /** What the service has, once a connection has told it. */
  hears?: boolean;
  speaks = false;
  is_on = false;
  /** Where sentences of the newest reply begin, in its words and in its audio. */
  private begins: { item_id: string; chars: number; ms: number }[] = [];

  constructor(
    private readonly conversation: Conversation,
    private readonly player: Player,
  ) {
    super();
    conversation.on("event", (event) => this.take(event));
    conversation.on("open", () => this.settle());
  }

  /** Speaks and listens from now on. */
  begin(): void {
    this.turn(true);
  }

  /** Sends what a microphone hears: about 20 ms at a time. */
  hear(samples: Int16Array): void {
    if (this.is_on) this.conversation.send({ type: "input_audio_buffer.append", audio: encoded(samples) });
  }

  /** Goes on in writing. */
  end(): void {
    this.hush();
    this.turn(false);
  }

  /** Stops what is being played, and tells how much of it was heard. */
  hush(): void {
    const heard = this.player.stop();
    if (heard) this.conversation.send({ type: "conversation.item.truncate", content_index: 0, ...heard });
  }

  /** Sentence that is being heard, where the service tells when it begins. */
  get current(): Sentence | undefined {
    const heard = this.player.heard();
    const begun = heard && this.begins.findLast(({ item_id, ms }) => item_id === heard.item_id && ms <= heard.audio_end_ms);
    const item = begun && this.conversation.items.find(({ id }) => id === begun.item_id);
    return item?.sentences.findLast(({ start }) => start <= begun!.chars);
  }

  private turn(is_on: boolean): void {
    if (this.is_on === is_on) return;
    this.is_on = is_on;
    this.settle();
    this.emit("change", undefined);
  }

  /** A user who does not listen wants words: audio that is not played would be made in vain. */
  private settle(): void {
    const spoken: Session = {
      output_modalities: [this.speaks ? "audio" : "text"],
      audio: { input: { turn_detection: { type: "server_vad" } } },
    };
    const session = { type: "realtime", ...(this.is_on ? spoken : TEXT) } as const;
    if (this.hears || this.speaks) this.conversation.send({ type: "session.update", session });
  }

  private take(event: ServerEvent): void {
    switch (event.type) {
      case "session.created": {
        const is_first = this.hears === undefined;
        this.hears = event.session.audio.input.turn_detection !== null;
        this.speaks = event.session.output_modalities[0] === "audio";
        // One that began to listen before the first connection tells the service now.
        if (is_first && this.is_on) this.settle();
        return;
      }
      case "input_audio_buffer.speech_started":
        return this.hush();
      case "response.output_audio_transcript.delta":
        return this.begun(event);
      case "response.output_audio.delta":
        if (this.is_on) this.player.play(event.item_id, decoded(event.delta));
    }
  }

  private begun({ item_id, delta, start_time }: ResponseOutputAudioTranscriptDelta): void {
    if (typeof start_time !== "number") return;
    const text = this.conversation.items.find(({ id }) => id === item_id)?.text ?? "";
    // The conversation has these words already. A space before them belongs to no sentence.
    const chars = [...text].length - [...delta.trimStart()].length;
    this.begins = [...this.begins.filter((known) => known.item_id === item_id), { item_id, chars, ms: start_time * 1000 }];
  }
}

/** Pause between two pieces that are written. */
const STEP_MS = 20;

/** Player for programs that write sound to a device or a pipe: it writes as fast as sound is played, so that little is on its way when it stops. */
export class PacedPlayer implements Player {
  private item_id = "";
  private waiting: Int16Array[] = [];
  private written = 0;
  private begins = 0;
  private timer?: ReturnType<typeof setInterval>;

  constructor(private readonly write: (samples: Int16Array) => void) {}

  get is_playing(): boolean {
    return this.timer !== undefined;
  }

  play(item_id: string, samples: Int16Array): void {
    if (samples.length === 0) return;
    if (item_id !== this.item_id) [this.item_id, this.waiting, this.written, this.begins] = [item_id, [], 0, performance.now()];
    if (!this.is_playing) {
      // What is behind the pause is played from here on.
      this.begins = performance.now() - (this.written * 1000) / AUDIO_RATE;
      this.timer = setInterval(() => this.go_on(), STEP_MS);
    }
    this.waiting.push(samples);
  }

  heard(): Heard | undefined {
    if (!this.is_playing) return undefined;
    return { item_id: this.item_id, audio_end_ms: Math.floor((this.written * 1000) / AUDIO_RATE) };
  }

  stop(): Heard | undefined {
    const heard = this.heard();
    this.rest();
    this.waiting = [];
    return heard;
  }

  private go_on(): void {
    const due = ((performance.now() - this.begins) * AUDIO_RATE) / 1000;
    while (this.written < due) {
      const piece = this.waiting.shift();
      if (!piece) return this.rest();
      const now = piece.subarray(0, Math.ceil(due - this.written));
      if (now.length < piece.length) this.waiting.unshift(piece.subarray(now.length));
      this.written += now.length;
      this.write(now);
    }
  }

  private rest(): void {
    clearInterval(this.timer);
    this.timer = undefined;
  }
}

function encoded(samples: Int16Array): string {
  const bytes = new Uint8Array(samples.buffer, samples.byteOffset, samples.byteLength);
  return btoa(String.fromCharCode(...bytes));
}

function decoded(audio: string): Int16Array {
  const text = atob(audio);
  return Int16Array.from({ length: text.length >> 1 }, (_, at) => text.charCodeAt(2 * at) | (text.charCodeAt(2 * at + 1) << 8));
}

// Speech by the service's own ears and voice: audio goes both ways over the conversation's websocket, and the service finds the turns.
// Knows what was played, because the conversation keeps only the words that were heard.
import { type Conversation, Emitter, type events } from "./client.ts";

/** Samples a second of the protocol's audio. */
const RATE = 24_000;

type Session = Omit<events.SessionFields, "type">;

/** Turns by hand. Its schema leaves the type open. */
const BY_HAND = null as unknown as undefined;
const TEXT: Session = { output_modalities: ["text"], audio: { input: { turn_detection: BY_HAND } } };

export class Spoken extends Emitter<{ change: undefined }> {
  /** What the service has, once a connection has told it. */
  hears?: boolean;
  speaks = false;
  is_on = false;
  private microphone?: Microphone;
  private readonly player = new Player(() => this.emit("change", undefined));

  constructor(private readonly conversation: Conversation) {
    super();
    conversation.on("event", (event) => this.take(event));
    conversation.on("open", () => this.settle());
  }

  get is_playing(): boolean {
    return this.player.is_playing;
  }

  /** Opens the microphone. Returns what is in the way. */
  async begin(): Promise<string | undefined> {
    if (!navigator.mediaDevices) return "This browser gives a microphone only to pages over https, or on this computer.";
    try {
      this.microphone = await Microphone.open((audio) => this.conversation.send({ type: "input_audio_buffer.append", audio }));
    } catch (error) {
      const is_refused = error instanceof DOMException && error.name === "NotAllowedError";
      return is_refused ? "This page may not use the microphone. Allow it in the browser's settings for this address." : "There is no microphone.";
    }
    this.turn(true);
    return undefined;
  }

  end(): void {
    this.microphone?.close();
    this.microphone = undefined;
    this.hush();
    this.turn(false);
  }

  /** Stops what is being played, and tells how much of it was heard. */
  hush(): void {
    const heard = this.player.stop();
    if (heard) this.conversation.send({ type: "conversation.item.truncate", content_index: 0, ...heard });
  }

  private turn(is_on: boolean): void {
    if (this.is_on === is_on) return;
    this.is_on = is_on;
    this.settle();
    this.emit("change", undefined);
  }

  /** A page that does not listen wants words: audio that is not played would be made in vain. */
  private settle(): void {
    const spoken: Session = {
      output_modalities: [this.speaks ? "audio" : "text"],
      audio: { input: { turn_detection: { type: "server_vad" } } },
    };
    const session = { type: "realtime", ...(this.is_on ? spoken : TEXT) } as const;
    if (this.hears || this.speaks) this.conversation.send({ type: "session.update", session });
  }

  private take(event: events.ServerEvent): void {
    switch (event.type) {
      case "session.created":
        this.hears = event.session.audio.input.turn_detection !== null;
        this.speaks = event.session.output_modalities[0] === "audio";
        return;
      case "input_audio_buffer.speech_started":
        return this.hush();
      case "response.output_audio.delta":
        if (this.is_on) this.player.play(event.item_id, event.delta);
    }
  }
}

/** Plays pieces of one reply behind another. */
class Player {
  private context?: AudioContext;
  private sources = new Set<AudioBufferSourceNode>();
  // Pieces of the current item: the context's second at which each begins, and its length.
  private pieces: { begins: number; seconds: number }[] = [];
  private item_id = "";
  private ends = 0;

  constructor(private readonly changed: () => void) {}

  get is_playing(): boolean {
    return this.sources.size > 0;
  }

  play(item_id: string, audio: string): void {
    const context = (this.context ??= new AudioContext({ sampleRate: RATE }));
    const samples = decoded(audio);
    if (samples.length === 0) return;
    if (item_id !== this.item_id) [this.item_id, this.pieces] = [item_id, []];
    const buffer = context.createBuffer(1, samples.length, RATE);
    buffer.copyToChannel(samples, 0);
    const source = context.createBufferSource();
    source.buffer = buffer;
    source.connect(context.destination);
    const begins = Math.max(this.ends, context.currentTime);
    this.ends = begins + buffer.duration;
    this.pieces.push({ begins, seconds: buffer.duration });
    source.onended = () => {
      this.sources.delete(source);
      if (!this.is_playing) this.changed();
    };
    source.start(begins);
    if (!this.is_playing) queueMicrotask(this.changed);
    this.sources.add(source);
  }

  /** Returns the item that was being played and how much of it was heard; undefined if all of it was. */
  stop(): { item_id: string; audio_end_ms: number } | undefined {
    if (!this.context || !this.is_playing) return undefined;
    const now = this.context.currentTime;
    const heard = this.pieces.map(({ begins, seconds }) => Math.min(Math.max(now - begins, 0), seconds));
    for (const source of this.sources) source.stop();
    this.sources.clear();
    [this.ends, this.pieces] = [0, []];
    this.changed();
    return { item_id: this.item_id, audio_end_ms: Math.floor(heard.reduce((sum, seconds) => sum + seconds, 0) * 1000) };
  }
}

/** Microphone of this computer, in pieces as the protocol takes them. */
class Microphone {
  private constructor(private readonly stream: MediaStream, private readonly context: AudioContext) {}

  static async open(hear: (audio: string) => void): Promise<Microphone> {
    const stream = await navigator.mediaDevices.getUserMedia({ audio: { echoCancellation: true, noiseSuppression: true, channelCount: 1 } });
    const context = new AudioContext();
    await context.audioWorklet.addModule("/console/microphone.js");
    const node = new AudioWorkletNode(context, "microphone", { processorOptions: { rate: RATE } });
    node.port.onmessage = ({ data }: MessageEvent<Int16Array>) => hear(encoded(data));
    context.createMediaStreamSource(stream).connect(node);
    // A node that leads nowhere is not asked for anything. It adds no sound.
    node.connect(context.destination);
    return new Microphone(stream, context);
  }

  close(): void {
    for (const track of this.stream.getTracks()) track.stop();
    void this.context.close();
  }
}

function encoded(samples: Int16Array): string {
  const bytes = new Uint8Array(samples.buffer, samples.byteOffset, samples.byteLength);
  return btoa(String.fromCharCode(...bytes));
}

function decoded(audio: string): Float32Array<ArrayBuffer> {
  const text = atob(audio);
  const samples = new Float32Array(text.length >> 1);
  for (let at = 0; at < samples.length; at++) {
    const value = text.charCodeAt(2 * at) | (text.charCodeAt(2 * at + 1) << 8);
    samples[at] = ((value << 16) >> 16) / 32_768;
  }
  return samples;
}

// Microphone and loudspeaker of a browser.
import { AUDIO_RATE, type Heard, type Player } from "./spoken.ts";

/** Loudspeaker of this computer. Knows the moment at which each piece is played. */
export class BrowserPlayer implements Player {
  private context?: AudioContext;
  private sources = new Set<AudioBufferSourceNode>();
  // Pieces of the current item: the context's second at which each begins, and its length.
  private pieces: { begins: number; seconds: number }[] = [];
  private item_id = "";
  private ends = 0;

  constructor(private readonly changed: () => void = () => {}) {}

  get is_playing(): boolean {
    return this.sources.size > 0;
  }

  play(item_id: string, samples: Int16Array): void {
    const context = (this.context ??= new AudioContext({ sampleRate: AUDIO_RATE }));
    if (samples.length === 0) return;
    if (item_id !== this.item_id) [this.item_id, this.pieces] = [item_id, []];
    const buffer = context.createBuffer(1, samples.length, AUDIO_RATE);
    buffer.copyToChannel(Float32Array.from(samples, (sample) => sample / 32_768), 0);
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

  heard(): Heard | undefined {
    if (!this.context || !this.is_playing) return undefined;
    const now = this.context.currentTime;
    const heard = this.pieces.map(({ begins, seconds }) => Math.min(Math.max(now - begins, 0), seconds));
    return { item_id: this.item_id, audio_end_ms: Math.floor(heard.reduce((sum, seconds) => sum + seconds, 0) * 1000) };
  }

  stop(): Heard | undefined {
    const heard = this.heard();
    if (!heard) return undefined;
    for (const source of this.sources) source.stop();
    this.sources.clear();
    [this.ends, this.pieces] = [0, []];
    this.changed();
    return heard;
  }
}

/** Microphone of this computer, in pieces as the protocol takes them. */
export class Microphone {
  private constructor(
    private readonly stream: MediaStream,
    private readonly context: AudioContext,
  ) {}

  /** Opens it. `worklet`: the address of the script that brings samples to the protocol's rate; the service has one. */
  static async open(hear: (samples: Int16Array) => void, worklet = "/console/microphone.js"): Promise<Microphone> {
    const stream = await navigator.mediaDevices.getUserMedia({ audio: { echoCancellation: true, noiseSuppression: true, channelCount: 1 } });
    const context = new AudioContext();
    const microphone = new Microphone(stream, context);
    try {
      await context.audioWorklet.addModule(worklet);
      const node = new AudioWorkletNode(context, "microphone", { processorOptions: { rate: AUDIO_RATE } });
      node.port.onmessage = ({ data }: MessageEvent<Int16Array>) => hear(data);
      context.createMediaStreamSource(stream).connect(node);
      // A node that leads nowhere is not asked for anything. It adds no sound.
      node.connect(context.destination);
    } catch (error) {
      // Nobody would close it.
      microphone.close();
      throw error;
    }
    return microphone;
  }

  close(): void {
    for (const track of this.stream.getTracks()) track.stop();
    void this.context.close();
  }
}

// Speech: what hears the user and what speaks replies. `Voice` is the seam: the browser's own recognition and synthesis stand behind it
// here, and the service's (audio over the Realtime websocket) may stand there where it has them.
import { Emitter, type Sentence } from "./client.ts";
import { now } from "./keep.ts";

export interface Hearing {
  /** Transcript so far, while the user speaks. */
  partial(text: string): void;
  final(text: string): void;
  ended(problem?: string): void;
}

export interface Voice {
  readonly hears: boolean;
  readonly speaks: boolean;
  /** Begins to listen. Returns the function that ends it. */
  listen(hearing: Hearing): () => void;
  say(text: string, progress: (chars: number) => void): Promise<void>;
  hush(): void;
}

interface Recognition extends EventTarget {
  continuous: boolean;
  interimResults: boolean;
  lang: string;
  start(): void;
  stop(): void;
  onresult: (event: { resultIndex: number; results: ArrayLike<ArrayLike<{ transcript: string }> & { isFinal: boolean }> }) => void;
  onerror: (event: { error: string }) => void;
  onend: () => void;
}

type Recognizers = { SpeechRecognition?: new () => Recognition; webkitSpeechRecognition?: new () => Recognition };

const PROBLEMS: Record<string, string> = {
  "not-allowed": "This page may not use the microphone. Allow it in the browser's settings for this address.",
  "service-not-allowed": "This browser does not recognise speech on this address.",
  "audio-capture": "There is no microphone.",
  network: "The browser's speech recognition cannot be reached.",
};

/** Recognition and synthesis of the browser. Some browsers send what they hear to their maker. */
export class BrowserVoice implements Voice {
  private readonly Recognition = (globalThis as Recognizers).SpeechRecognition ?? (globalThis as Recognizers).webkitSpeechRecognition;

  get hears(): boolean {
    return this.Recognition !== undefined;
  }

  get speaks(): boolean {
    return "speechSynthesis" in globalThis;
  }

  listen(hearing: Hearing): () => void {
    if (!this.Recognition) return () => {};
    const recognition = new this.Recognition();
    let problem: string | undefined;
    Object.assign(recognition, { continuous: true, interimResults: true, lang: now().language || navigator.language });
    recognition.onresult = ({ resultIndex, results }) => {
      let partial = "";
      for (let at = resultIndex; at < results.length; at++) {
        const text = results[at]?.[0]?.transcript ?? "";
        if (results[at]?.isFinal) hearing.final(text.trim());
        else partial += text;
      }
      if (partial.trim()) hearing.partial(partial.trim());
    };
    recognition.onerror = ({ error }) => {
      if (error !== "no-speech" && error !== "aborted") problem = PROBLEMS[error] ?? `Listening failed: ${error}.`;
    };
    recognition.onend = () => hearing.ended(problem);
    recognition.start();
    return () => recognition.stop();
  }

  say(text: string, progress: (chars: number) => void): Promise<void> {
    const words = new SpeechSynthesisUtterance(text);
    const voice = speechSynthesis.getVoices().find((voice) => voice.voiceURI === now().voice);
    if (voice) [words.voice, words.lang] = [voice, voice.lang];
    words.onboundary = ({ charIndex }) => progress([...text.slice(0, charIndex)].length);
    return new Promise((done) => {
      words.onend = words.onerror = () => done();
      speechSynthesis.speak(words);
    });
  }

  hush(): void {
    if (this.speaks) speechSynthesis.cancel();
  }
}

/** Reply that was being read, and its characters that were heard. */
export interface Heard {
  item_id: string;
  chars: number;
}

/** Sentences that are spoken one behind the other. Knows how far the user has heard. */
export class Speaking extends Emitter<{ change: undefined }> {
  current?: Sentence;
  private waiting: Sentence[] = [];
  /** True while a reply is read that comes, and not one that the user read before. */
  private is_first = false;
  private spoken = 0;
  private turn = 0;

  constructor(private readonly voice: Voice) {
    super();
  }

  /** Reads a sentence of a reply that comes. */
  say(sentence: Sentence): void {
    if (!this.is_first) this.stop();
    this.is_first = true;
    this.read(sentence);
  }

  /** Reads a whole reply again. The user knows its words, so that all of it stays when they stop it. */
  repeat(sentences: Sentence[]): void {
    this.stop();
    sentences.forEach((sentence) => this.read(sentence));
  }

  /** Stops. Returns how much was heard of a reply that came; undefined if none was being read. */
  stop(): Heard | undefined {
    const heard = this.is_first && this.current && { item_id: this.current.item_id, chars: this.current.start + this.spoken };
    this.is_first = false;
    this.turn++;
    this.waiting = [];
    this.current = undefined;
    this.voice.hush();
    this.emit("change", undefined);
    return heard || undefined;
  }

  private read(sentence: Sentence): void {
    this.waiting.push(sentence);
    if (!this.current) void this.run();
  }

  private async run(): Promise<void> {
    const turn = this.turn;
    for (let next = this.waiting.shift(); next; next = this.waiting.shift()) {
      [this.current, this.spoken] = [next, 0];
      this.emit("change", undefined);
      await this.voice.say(next.text, (chars) => (this.spoken = chars));
      if (turn !== this.turn) return;
    }
    [this.current, this.is_first] = [undefined, false];
    this.emit("change", undefined);
  }
}

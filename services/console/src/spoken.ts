// Speech of this page by the service's own ears and voice, with the browser's microphone and loudspeaker.
import { BrowserPlayer, type Conversation, Microphone, Spoken } from "./client.ts";

/** Pause between two looks at which sentence is being heard. */
const LOOK_MS = 100;

export class SpokenPage extends Spoken {
  private microphone?: Microphone;
  private readonly loudspeaker: BrowserPlayer;
  private looks?: ReturnType<typeof setInterval>;
  /** Counts the wishes to listen and to end: a microphone may open long after its wish. */
  private wishes = 0;

  constructor(conversation: Conversation) {
    const loudspeaker = new BrowserPlayer(() => this.played());
    super(conversation, loudspeaker);
    this.loudspeaker = loudspeaker;
  }

  get is_playing(): boolean {
    return this.loudspeaker.is_playing;
  }

  /** Opens the microphone. Returns what is in the way. */
  async listen(): Promise<string | undefined> {
    if (!navigator.mediaDevices) return "This browser gives a microphone only to pages over https, or on this computer.";
    const wish = ++this.wishes;
    let microphone: Microphone;
    try {
      microphone = await Microphone.open((samples) => this.hear(samples));
    } catch (error) {
      const is_refused = error instanceof DOMException && error.name === "NotAllowedError";
      return is_refused ? "This page may not use the microphone. Allow it in the browser's settings for this address." : "There is no microphone.";
    }
    if (wish !== this.wishes) {
      microphone.close();
      return undefined;
    }
    this.microphone = microphone;
    this.begin();
    return undefined;
  }

  override end(): void {
    this.wishes++;
    this.microphone?.close();
    this.microphone = undefined;
    super.end();
  }

  private played(): void {
    clearInterval(this.looks);
    let shown = this.current;
    const look = () => {
      if (this.current === shown) return;
      shown = this.current;
      this.emit("change", undefined);
    };
    this.looks = this.is_playing ? setInterval(look, LOOK_MS) : undefined;
    this.emit("change", undefined);
  }
}

// Ears that hear what a test says, and a voice whose every character takes the same time, over Wyoming.
import { type AddressInfo, createServer, type Socket } from "node:net";

const RATE = 22_050;
const CHUNK = 1024;

export class Wyoming {
  /** What the ears hear, one text a turn. */
  readonly hears: string[] = [];
  /** Seconds of audio that the ears were given, a number a request. */
  readonly heard: number[] = [];
  readonly said: string[] = [];
  url = "";
  private readonly server = createServer((socket) => void this.serve(socket).catch(() => socket.destroy()));

  constructor(private readonly char_ms: number) {}

  static async start(char_ms: number): Promise<Wyoming> {
    const wyoming = new Wyoming(char_ms);
    await new Promise<void>((listening) => wyoming.server.listen(0, "127.0.0.1", listening));
    wyoming.url = `wyoming://127.0.0.1:${(wyoming.server.address() as AddressInfo).port}`;
    return wyoming;
  }

  stop(): void {
    this.server.close();
  }

  private async serve(socket: Socket): Promise<void> {
    let [unread, bytes] = [Buffer.alloc(0), 0];
    for await (const some of socket) {
      unread = Buffer.concat([unread, some as Buffer]);
      for (let end = unread.indexOf(10); end >= 0; end = unread.indexOf(10)) {
        const head = JSON.parse(unread.subarray(0, end).toString());
        const [data, payload] = [end + 1 + (head.data_length ?? 0), head.payload_length ?? 0];
        if (unread.length < data + payload) break;
        const own = head.data_length ? JSON.parse(unread.subarray(end + 1, data).toString()) : head.data;
        unread = unread.subarray(data + payload);
        bytes += payload;
        if (head.type === "describe") send(socket, "info", INFO);
        if (head.type === "synthesize") this.say(socket, own.text);
        if (head.type === "audio-stop") {
          this.heard.push(bytes / 32_000);
          bytes = 0;
          send(socket, "transcript", { text: this.hears.shift() ?? "" });
        }
      }
    }
  }

  private say(socket: Socket, text: string): void {
    this.said.push(text);
    const form = { rate: RATE, width: 2, channels: 1 };
    send(socket, "audio-start", form);
    const samples = new Int16Array(Math.floor((RATE * this.char_ms * [...text].length) / 1000)).fill(9000);
    for (let at = 0; at < samples.length; at += CHUNK) {
      const piece = samples.subarray(at, at + CHUNK);
      send(socket, "audio-chunk", form, Buffer.from(piece.buffer, piece.byteOffset, piece.byteLength));
    }
    send(socket, "audio-stop", {});
  }
}

function send(socket: Socket, type: string, own: object, payload: Buffer = Buffer.alloc(0)): void {
  const data = Buffer.from(JSON.stringify(own));
  const head = { type, version: "1.10.2", data_length: data.length, payload_length: payload.length };
  socket.write(Buffer.concat([Buffer.from(`${JSON.stringify(head)}\n`), data, payload]));
}

const ATTRIBUTION = { name: "tests", url: "" };
const ONE = { name: "scripted", attribution: ATTRIBUTION, installed: true, languages: ["en"] };
const PROGRAM = { name: "scripted", attribution: ATTRIBUTION, installed: true };
const INFO = { asr: [{ ...PROGRAM, models: [ONE] }], tts: [{ ...PROGRAM, voices: [ONE] }] };

/** A buzz with the formants of an open vowel, which a detector takes for a voice. */
export function vowel(rate: number, seconds: number): Int16Array {
  const formants = [[730, 90, 0, 0], [1090, 110, 0, 0], [2440, 170, 0, 0]] as [number, number, number, number][];
  const samples = new Int16Array(rate * seconds);
  for (let at = 0; at < samples.length; at++) {
    const pitch = 120 + 12 * Math.sin((at * 5.3) / rate);
    const pulse = at % Math.floor(rate / pitch) === 0 ? 1 : 0;
    let sum = 0;
    for (const state of formants) {
      const radius = Math.exp((-Math.PI * state[1]) / rate);
      const next = pulse + 2 * radius * Math.cos((2 * Math.PI * state[0]) / rate) * state[2] - radius * radius * state[3];
      [state[3], state[2]] = [state[2], next];
      sum += next;
    }
    samples[at] = Math.max(-30_000, Math.min(30_000, sum * 2000));
  }
  return samples;
}

/** A file for the browser's microphone: stretches of silence and of voice, in seconds by turns. */
export function wav(...stretches: number[]): Buffer {
  const rate = 48_000;
  const pieces = stretches.map((seconds, at) => (at % 2 === 0 ? new Int16Array(rate * seconds) : vowel(rate, seconds)));
  const audio = Buffer.concat(pieces.map((piece) => Buffer.from(piece.buffer)));
  const head = Buffer.alloc(44);
  head.write("RIFF", 0);
  head.writeUInt32LE(36 + audio.length, 4);
  head.write("WAVEfmt ", 8);
  head.writeUInt32LE(16, 16);
  head.writeUInt16LE(1, 20);
  head.writeUInt16LE(1, 22);
  head.writeUInt32LE(rate, 24);
  head.writeUInt32LE(rate * 2, 28);
  head.writeUInt16LE(2, 32);
  head.writeUInt16LE(16, 34);
  head.write("data", 36);
  head.writeUInt32LE(audio.length, 40);
  return Buffer.concat([head, audio]);
}

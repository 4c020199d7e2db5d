// Parts of the page that need no browser.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Conversation, type Item, type Sentence } from "../client/src/index.ts";
import { with_history } from "../src/history.ts";
import { parts_of } from "../src/parts/files.ts";
import { blocks } from "../src/parts/prose.tsx";
import { address, place_of } from "../src/routes.ts";
import { buckets } from "../src/views/buckets.ts";
import { Speaking } from "../src/voice.ts";
import { brief, bytes, length, percent, seconds } from "../src/words.ts";

test("a model's text becomes paragraphs, lists and code, and HTML stays text", () => {
  const text = "Hello\nthere\n\n- one\n- two\n1. first\n```\n<b>\n```\n## Title\n<script>alert(1)</script>";
  assert.deepEqual(blocks(text), [
    { kind: "text", text: "Hello\nthere" },
    { kind: "list", is_numbered: false, items: ["one", "two"], numbers: [0, 0] },
    { kind: "list", is_numbered: true, items: ["first"], numbers: [1] },
    { kind: "code", text: "<b>" },
    { kind: "heading", text: "Title" },
    { kind: "text", text: "<script>alert(1)</script>" },
  ]);
  // A reply that is still coming may stop anywhere.
  assert.deepEqual(blocks("```\nlet"), [{ kind: "code", text: "let" }]);
});

test("no number and no word of a reply is lost by its form", () => {
  const text = "3. Oktober\n\n1. mix\n\nWait.\n\n2. bake\n```ls -la``` lists\n```sh\nls\n```no end\n```\nthen";
  assert.deepEqual(blocks(text), [
    { kind: "list", is_numbered: true, items: ["Oktober"], numbers: [3] },
    { kind: "list", is_numbered: true, items: ["mix"], numbers: [1] },
    { kind: "text", text: "Wait." },
    { kind: "list", is_numbered: true, items: ["bake"], numbers: [2] },
    { kind: "text", text: "```ls -la``` lists" },
    { kind: "code", text: "ls\n```no end" },
    { kind: "text", text: "then" },
  ]);
});

test("a place stands in the address, also as an older page wrote it", () => {
  for (const place of [{ view: "talk", of: "sess_1", item: "item_2" }, { view: "people", of: "Zoë / kitchen", item: undefined }] as const) {
    assert.deepEqual(place_of(address(place)), place);
  }
  assert.deepEqual(place_of("#sess_old"), { view: "talk", of: "sess_old" });
  assert.equal(place_of("#/elsewhere").view, "talk");
  assert.deepEqual(place_of("#/people/100%"), { view: "people", of: "100%", item: undefined }, "a cut address");
  // The home has no name, and somebody may be called so.
  assert.deepEqual(place_of(address({ view: "people", of: "" })).of, undefined);
});

test("buckets count what lies between their bounds", () => {
  const samples = {
    'wait_bucket{priority="talk",le="0.1"}': 2,
    'wait_bucket{priority="talk",le="0.5"}': 5,
    'wait_bucket{priority="talk",le="+Inf"}': 6,
    'wait_bucket{priority="background",le="0.1"}': 9,
  };
  const found = buckets(samples, "wait", 'priority="talk"');
  assert.deepEqual(found, [{ upto: 0.1, count: 2 }, { upto: 0.5, count: 3 }, { upto: Infinity, count: 1 }]);
});

test("numbers are written as people read them, and lengths as CSS does", () => {
  assert.deepEqual([seconds(84.4), seconds(1234), seconds(null)], ["84 ms", "1.2 s", "–"]);
  assert.deepEqual([bytes(512), bytes(1536), bytes(18_993_951_744)], ["512 B", "1.5 KiB", "18 GiB"]);
  assert.deepEqual([bytes(-8_060_928), bytes(-12)], ["-7.7 MiB", "-12 B"]);
  assert.deepEqual([percent(0.138), length(0.138)], ["14 %", "13.80%"]);
  assert.equal(brief("Where did I put the marmalade that grandma made?", 24), "Where did I put the…");
});

/** Sockets that do what the test says. */
function fake() {
  const sockets: { onopen?: () => void; onmessage?: (message: { data: string }) => void; onclose?: () => void; sent: Record<string, unknown>[] }[] = [];
  class FakeSocket {
    readyState = 1;
    sent: Record<string, unknown>[] = [];
    constructor() {
      sockets.push(this);
    }
    close() {}
    send(text: string) {
      this.sent.push(JSON.parse(text));
    }
  }
  const conversation = new Conversation({ url: "http://localhost", WebSocket: FakeSocket as unknown as typeof WebSocket });
  const tell = (...events: object[]) => events.forEach((event) => sockets.at(-1)!.onmessage!({ data: JSON.stringify(event) }));
  return { sockets, conversation, tell };
}

test("a sentence that is told again after a lost connection is heard once", () => {
  const { conversation, tell } = fake();
  const heard: string[] = [];
  conversation.on("sentence", ({ text }) => heard.push(text));
  const item = { id: "i1", object: "realtime.item", type: "message", role: "assistant", status: "in_progress", content: [] };
  const sentence = (index: number, text: string, text_start: number) =>
    ({ type: "response.sentence.done", response_id: "r1", item_id: "i1", index, text, text_start, text_end: text_start + text.length });
  const begin = [
    { type: "session.created", session: { id: "s1" } },
    { type: "response.created", response: { id: "r1", conversation_id: "c1" } },
    { type: "response.output_item.added", response_id: "r1", output_index: 0, item },
    { type: "conversation.item.added", previous_item_id: null, item },
    { type: "response.output_text.delta", response_id: "r1", item_id: "i1", delta: "One. Two" },
    sentence(0, "One. ", 0),
  ];
  conversation.connect();
  tell(...begin);
  conversation.connect();
  tell(...begin, sentence(1, "Two", 5));
  assert.deepEqual(heard, ["One. ", "Two"]);
  assert.equal(conversation.items[0]?.text, "One. Two");
  assert.equal(conversation.items[0]?.sentences.length, 2);
});

test("a message that the network took and the service did not is sent again, and taken once", () => {
  const { sockets, conversation, tell } = fake();
  const told: string[] = [];
  const unsaid: string[] = [];
  conversation.on("error", ({ code }) => told.push(code));
  conversation.on("unsaid", (text) => unsaid.push(text));
  const created = { type: "session.created", session: { id: "s1" } };
  const commits = () => sockets.at(-1)!.sent.filter(({ type }) => type === "input_text_buffer.commit");
  const refuse = (code: string, event_id: unknown) => tell({ type: "error", error: { type: "invalid_request_error", code, message: "no", event_id } });
  conversation.connect();
  sockets.at(-1)!.onopen!();
  tell(created);
  assert.ok(conversation.say("The oven is on."));
  const [first] = commits();
  assert.equal(first?.text, "The oven is on.");
  assert.ok(conversation.is_waiting && conversation.unsent.length === 0, "it is not called late at once");
  // The connection is lost before a word of the service came.
  sockets.at(-1)!.onclose!();
  assert.deepEqual(conversation.unsent, ["The oven is on."]);
  conversation.say("Turn it off.");
  conversation.connect();
  tell(created);
  assert.deepEqual(commits().map(({ text, item_id, create_response }) => [text, item_id === first?.item_id, create_response]), [
    ["The oven is on.", true, false],
    ["Turn it off.", false, true],
  ]);
  // It had the first one, and has both now.
  const [, second] = commits();
  refuse("item_create_duplicate_item_id", first?.event_id);
  const item = { id: second?.item_id, type: "message", role: "user", status: "completed", content: [{ type: "input_text", text: "Turn it off." }] };
  tell({ type: "conversation.item.added", previous_item_id: null, item });
  assert.deepEqual([conversation.is_waiting, told, unsaid], [false, [], []]);
  // What it refuses comes back to whoever typed it.
  conversation.say("Too long");
  refuse("too_much_text", commits().at(-1)?.event_id);
  assert.deepEqual([conversation.is_waiting, told, unsaid], [false, ["too_much_text"], ["Too long"]]);
  // Without a connection nothing is half changed, and the ninth message is not swallowed.
  conversation.close();
  assert.deepEqual([conversation.edit(String(second?.item_id), "x"), conversation.regenerate(), conversation.resume()], [false, false, false]);
  const said = Array.from({ length: 9 }, (_, at) => conversation.say(`Message ${at}`));
  assert.deepEqual(said, [...Array<boolean>(8).fill(true), false]);
  assert.equal(conversation.unsent[0], "Message 0");
});

const message = (id: string): Item => ({ id, kind: "message", role: "user", text: id, status: "completed", sentences: [] });

test("turns that only the store has stand before those that the service tells", () => {
  const ids = (items: Item[]) => items.map(({ id }) => id).join(" ");
  const all = ["a", "b", "c", "d"].map(message);
  assert.equal(ids(with_history(all, all.slice(2))), "a b c d");
  assert.equal(ids(with_history(all, [...all.slice(2), message("e")])), "a b c d e");
  assert.equal(ids(with_history(all.slice(0, 2), all.slice(2))), "a b c d", "all that was read is older");
  assert.equal(ids(with_history([], all)), "a b c d");
});

test("a large file is sent in parts of whole conversations", () => {
  const conversation = (id: string, chars: number) => `{"type":"session","id":"${id}"}\n{"type":"item","text":"${"x".repeat(chars)}"}\n{"type":"end"}\n`;
  const text = conversation("1", 2_500_000) + conversation("2", 2_500_000) + conversation("3", 10);
  const parts = parts_of(text);
  assert.deepEqual(parts.map((part) => part.match(/"session"/g)?.length), [1, 2]);
  assert.equal(parts.join(""), text);
  // What is there is left out, so that one that was deleted comes back out of a file with all.
  assert.deepEqual(parts_of(text, new Set(["1", "3"])), [conversation("2", 2_500_000)]);
  assert.deepEqual(parts_of(text, new Set(["1", "2", "3"])), []);
  assert.deepEqual(parts_of("no export"), ["no export"], "the service says what is wrong with it");
});

test("who stops an old reply that is read again has heard all of it", () => {
  const said: string[] = [];
  const voice = {
    hears: false,
    speaks: true,
    listen: () => () => {},
    say: (text: string, progress: (chars: number) => void) => (said.push(text), progress(3), new Promise<void>(() => {})),
    hush: () => {},
  };
  const sentence = (item_id: string, start: number): Sentence => ({ item_id, response_id: "r", index: 0, text: "Hello there.", start, end: start + 12 });
  const speaking = new Speaking(voice);
  speaking.say(sentence("new", 10));
  assert.deepEqual(speaking.stop(), { item_id: "new", chars: 13 });
  speaking.repeat([sentence("old", 0)]);
  assert.equal(speaking.current?.item_id, "old");
  assert.equal(speaking.stop(), undefined);
  // A reply that comes takes the place of one that is read again.
  speaking.repeat([sentence("old", 0)]);
  speaking.say(sentence("new", 0));
  assert.deepEqual(speaking.stop(), { item_id: "new", chars: 3 });
});

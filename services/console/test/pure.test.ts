// Parts of the page that need no browser.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Conversation } from "../client/src/index.ts";
import { blocks } from "../src/parts/prose.tsx";
import { address, place_of } from "../src/routes.ts";
import { buckets } from "../src/views/buckets.ts";
import { brief, bytes, length, percent, seconds } from "../src/words.ts";

test("a model's text becomes paragraphs, lists and code, and HTML stays text", () => {
  const text = "Hello\nthere\n\n- one\n- two\n1. first\n```\n<b>\n```\n## Title\n<script>alert(1)</script>";
  assert.deepEqual(blocks(text), [
    { kind: "text", text: "Hello\nthere" },
    { kind: "list", is_numbered: false, items: ["one", "two"] },
    { kind: "list", is_numbered: true, items: ["first"] },
    { kind: "code", text: "<b>" },
    { kind: "heading", text: "Title" },
    { kind: "text", text: "<script>alert(1)</script>" },
  ]);
  // A reply that is still coming may stop anywhere.
  assert.deepEqual(blocks("```\nlet"), [{ kind: "code", text: "let" }]);
});

test("a place stands in the address, also as an older page wrote it", () => {
  for (const place of [{ view: "talk", of: "sess_1", item: "item_2" }, { view: "people", of: "Zoë / kitchen", item: undefined }] as const) {
    assert.deepEqual(place_of(address(place)), place);
  }
  assert.deepEqual(place_of("#sess_old"), { view: "talk", of: "sess_old" });
  assert.equal(place_of("#/elsewhere").view, "talk");
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
  assert.deepEqual([percent(0.138), length(0.138)], ["14 %", "13.80%"]);
  assert.equal(brief("Where did I put the marmalade that grandma made?", 24), "Where did I put the…");
});

test("a sentence that is told again after a lost connection is heard once", () => {
  const sockets: { onmessage?: (message: { data: string }) => void; onclose?: () => void; readyState: number; close(): void; send(): void }[] = [];
  class FakeSocket {
    readyState = 1;
    constructor() {
      sockets.push(this);
    }
    close() {}
    send() {}
  }
  const conversation = new Conversation({ url: "http://localhost", WebSocket: FakeSocket as unknown as typeof WebSocket });
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
  const tell = (events: object[]) => events.forEach((event) => sockets.at(-1)!.onmessage!({ data: JSON.stringify(event) }));
  conversation.connect();
  tell(begin);
  conversation.connect();
  tell([...begin, sentence(1, "Two", 5)]);
  assert.deepEqual(heard, ["One. ", "Two"]);
  assert.equal(conversation.items[0]?.text, "One. Two");
  assert.equal(conversation.items[0]?.sentences.length, 2);
});

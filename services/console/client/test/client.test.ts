// The client library against the real binary with the model inside it.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { WebSocket } from "ws";
import { Service } from "../../test/service.ts";
import { vowel, Wyoming } from "../../test/wyoming.ts";
import { Api, ApiError, AUDIO_RATE, Conversation, type ConversationEvents, PacedPlayer, type Refusal, Spoken } from "../src/index.ts";

let service: Service;
before(async () => {
  service = await Service.start();
});
after(() => Service.stop_all());

function talk(more: object = {}): Conversation {
  const conversation = new Conversation({ url: service.url, WebSocket, retry_ms: [50, 400], ...more });
  conversation.connect();
  return conversation;
}

const PATIENCE_MS = 60_000;

function next<Name extends keyof ConversationEvents>(
  conversation: Conversation,
  name: Name,
  is_it: (value: ConversationEvents[Name]) => boolean = () => true,
): Promise<ConversationEvents[Name]> {
  return new Promise((done, failed) => {
    const late = setTimeout(() => failed(new Error(`no ${name} came`)), PATIENCE_MS);
    const off = conversation.on(name, (value) => {
      if (!is_it(value)) return;
      clearTimeout(late);
      off();
      done(value);
    });
  });
}

/** Waits until something holds of a conversation. */
async function until(conversation: Conversation, holds: () => boolean): Promise<void> {
  if (!holds()) await next(conversation, "change", holds);
}

async function ask(conversation: Conversation, text: string) {
  const report = next(conversation, "report");
  conversation.say(text);
  return report;
}

test("a reply comes as deltas, sentences and a report", async () => {
  const conversation = talk();
  let streamed = "";
  const sentences: string[] = [];
  conversation.on("delta", ({ text }) => (streamed += text));
  conversation.on("sentence", ({ text }) => sentences.push(text));
  // Said before there is a connection: it waits for one.
  const report = await ask(conversation, "Hello");
  const [said, reply] = conversation.items;
  assert.deepEqual([said?.role, said?.text], ["user", "Hello"]);
  assert.deepEqual([reply?.role, reply?.status, reply?.text], ["assistant", "completed", streamed]);
  assert.ok(sentences.length > 0 && reply!.text.includes(sentences[0]!));
  const [first] = reply!.sentences;
  assert.equal([...reply!.text].slice(first!.start, first!.end).join(""), first!.text);
  assert.equal(reply!.report?.response_id, report.response_id);
  assert.equal(conversation.reply, undefined);
  assert.ok(conversation.window && conversation.window.tokens > 0);
  conversation.close();
});

test("a client that comes back is told what it has not seen, once", async () => {
  const first = talk();
  await ask(first, "Hello");
  const id = first.id!;
  const again = talk({ session: id });
  await until(again, () => again.items.length === 2);
  assert.deepEqual(again.items.map(({ text }) => text), first.items.map(({ text }) => text));
  await ask(again, "Good morning");
  await until(first, () => first.items[3]?.status === "completed");
  assert.deepEqual(first.items.map(({ id }) => id), again.items.map(({ id }) => id));
  first.close();
  again.close();
});

test("a lost connection is opened again, and the conversation goes on", async () => {
  const conversation = talk();
  await ask(conversation, "Hello");
  const lost = next(conversation, "state", (state) => state === "waiting");
  await service.kill();
  await lost;
  // What is said meanwhile waits.
  conversation.say("Are you there?");
  assert.deepEqual(conversation.unsent, ["Are you there?"]);
  const report = next(conversation, "report");
  await service.again();
  await report;
  const roles = conversation.items.map(({ role }) => role);
  assert.deepEqual(roles, ["user", "assistant", "user", "assistant"]);
  assert.deepEqual(conversation.unsent, []);
  conversation.close();
});

test("an interruption ends the reply where it was heard", async () => {
  const conversation = talk();
  const begun = next(conversation, "delta");
  conversation.say("Tell me a story");
  await begun;
  const done = next(conversation, "done");
  conversation.interrupt(3);
  await done;
  await until(conversation, () => [...conversation.items[1]!.text].length <= 3);
  assert.equal(conversation.items[1]!.status, "incomplete");
  conversation.close();
});

test("partial transcripts are said as they come, and the last one is the message", async () => {
  const conversation = talk();
  await next(conversation, "state", (state) => state === "open");
  const refused: string[] = [];
  conversation.on("error", ({ message }) => refused.push(message));
  for (const partial of ["Good", "Good mor", "Good morning"]) conversation.hear(partial);
  assert.equal(conversation.partial, "Good morning");
  await ask(conversation, "Good morning");
  assert.equal(conversation.items[0]!.text, "Good morning");
  assert.deepEqual([conversation.partial, refused.length], ["", 0]);
  conversation.close();
});

test("speech goes both ways, and what was not heard is not kept", async () => {
  const wyoming = await Wyoming.start(200);
  wyoming.hears.push("Tell me a story.", "Thank you.", "");
  const own = await Service.start(`[speech]\nstt = "${wyoming.url}"\ntts = "${wyoming.url}"\npause_ms = 0\n`);
  let played = 0;
  const conversation = talk({ url: own.url });
  const spoken = new Spoken(conversation, new PacedPlayer((samples) => (played += samples.length)));
  spoken.begin();
  await next(conversation, "session", ({ audio }) => audio.input.turn_detection !== null);
  const speak = async (seconds: number) => {
    // A second of silence ends the turn.
    const samples = [...vowel(AUDIO_RATE, seconds), ...new Int16Array(AUDIO_RATE)];
    for (let at = 0; at < samples.length; at += AUDIO_RATE / 50) {
      spoken.hear(Int16Array.from(samples.slice(at, at + AUDIO_RATE / 50)));
      await new Promise((done) => setTimeout(done, 20));
    }
  };
  const report = next(conversation, "report");
  await speak(1);
  await until(conversation, () => conversation.items.some(({ role, text }) => role === "user" && text === "Tell me a story."));
  await report;
  const made = conversation.items.at(-1)?.text ?? "";
  const late = Date.now() + PATIENCE_MS;
  while (!spoken.current && Date.now() < late) await new Promise((done) => setTimeout(done, 20));
  assert.ok(made.includes(spoken.current?.text ?? "no sentence"), `${spoken.current?.text} | ${made}`);
  const cut = next(conversation, "event", (event) => event.type === "conversation.item.truncated");
  await speak(1);
  await cut;
  assert.ok(played > 0, "nothing was played");
  const kept = conversation.items.find(({ role, status }) => role === "assistant" && status === "incomplete")?.text ?? "";
  assert.ok(made.startsWith(kept) && kept.length < made.length, `${kept} | ${made}`);
  spoken.end();
  assert.equal(spoken.is_on, false);
  conversation.close();
  await own.stop();
  wyoming.stop();
});

test("a message is edited, and a reply is made again", async () => {
  const conversation = talk();
  await ask(conversation, "Hello");
  const first = conversation.items[1]!.id;
  const again = next(conversation, "report");
  conversation.regenerate();
  await again;
  assert.deepEqual(conversation.items.map(({ role }) => role), ["user", "assistant"]);
  assert.notEqual(conversation.items[1]!.id, first);
  const edited = next(conversation, "report");
  conversation.edit(conversation.items[0]!.id, "Good morning");
  await edited;
  assert.deepEqual(conversation.items.map(({ role }) => role), ["user", "assistant"]);
  assert.equal(conversation.items[0]!.text, "Good morning");
  conversation.close();
});

test("a session that is not there is refused with a reason, and not asked for again", async () => {
  const conversation = talk({ session: "sess_that_is_not_there" });
  const refusal: Refusal = await next(conversation, "refused");
  assert.equal(refusal.status, 404);
  assert.equal(conversation.state, "refused");
});

test("the other routes answer as their types say", async () => {
  const conversation = talk();
  await ask(conversation, "Hello");
  const api = new Api({ url: service.url });
  const id = conversation.id!;
  const line = async () => (await api.sessions()).data.find((line) => line.id === id);
  assert.deepEqual([(await line())!.title, (await line())!.first_words], ["", "Hello"]);
  await api.rename(id, "  A greeting ");
  assert.equal((await line())!.title, "A greeting");
  const window = await api.window(id);
  const parts = ["instructions", "tools", "facts", "summary", "pins", "turns", "marks"] as const;
  assert.equal(parts.reduce((sum, part) => sum + window[`${part}_tokens`], 0), window.total_tokens);
  assert.ok(window.total_tokens > 0 && window.total_tokens < window.ctx_size);
  const [turn] = (await api.turns(id)).data;
  assert.equal(turn!.response_id, conversation.items[1]!.response_id);
  await api.feedback(id, turn!.response_id!, 1);
  assert.equal((await api.turns(id)).data[0]!.feedback, 1);
  const hits = (await api.search("Hello")).data;
  assert.ok(hits.some((hit) => hit.session_id === id && hit.excerpt.includes("**Hello**")));
  const items = (await api.items(id)).data;
  assert.equal(items[1]!.response, turn!.response_id);
  const exported = await api.export(id);
  await api.remove(id);
  await assert.rejects(api.window(id), (error) => error instanceof ApiError && error.status === 404);
  assert.deepEqual((await api.import(exported)).ids, [id]);
  assert.equal((await line())!.title, "A greeting");
  conversation.close();
});

test("a fact is corrected and forgotten", async () => {
  const api = new Api({ url: service.url });
  const fact = await api.add_fact("anna", "Anna's cat is called Mimi.");
  await api.correct(fact, "Anna's cat is called Momo.");
  const texts = async () => (await api.facts("anna")).data.map(({ text }) => text);
  assert.deepEqual(await texts(), ["Anna's cat is called Momo."]);
  await api.forget((await api.facts("anna")).data[0]!.id);
  assert.deepEqual(await texts(), []);
});

test("the server tells its state as a stream", async () => {
  const api = new Api({ url: service.url });
  const ends = new AbortController();
  const states: string[] = [];
  await api
    .watch((state) => {
      states.push(state.model);
      if (states.length === 2) ends.abort();
    }, ends.signal)
    .catch((error: Error) => assert.equal(error.name, "AbortError"));
  assert.deepEqual(states, ["reprise-builtin", "reprise-builtin"]);
  const settings = (await api.settings()).data;
  const port = settings.find(({ section, key }) => section === "server" && key === "port");
  assert.deepEqual([port?.is_chosen, port?.origin], [true, "flag --port"]);
  assert.ok(port!.comment.length > 10);
});

test("a key opens its user's conversations only, and a wrong one nothing", async () => {
  const guarded = Service.prepared('[auth]\nrequired = "always"\n');
  const made = (user: string, ...more: string[]) =>
    (JSON.parse(guarded.run("keys", "create", "--user", user, "--json", ...more)) as { key: string }).key;
  const [ann, ben] = [made("ann"), made("ben", "--scope", "talk", "--scope", "sessions", "--scope", "admin")];
  await guarded.start();
  const { url } = guarded;
  const refused = new Conversation({ url, key: "rk_wrong_wrong", WebSocket });
  refused.connect();
  assert.equal((await next(refused, "refused")).status, 401);
  const conversation = new Conversation({ url, key: ann, WebSocket });
  conversation.connect();
  await ask(conversation, "Hello");
  const id = conversation.id!;
  const [of_ann, of_ben] = [new Api({ url, key: ann }), new Api({ url, key: ben })];
  assert.equal((await of_ann.sessions()).data.length, 1);
  assert.deepEqual((await of_ben.sessions()).data, []);
  const is = (status: number) => (error: unknown) => error instanceof ApiError && error.status === status;
  for (const work of [of_ben.window, of_ben.turns, of_ben.export, of_ben.remove]) await assert.rejects(work(id), is(404));
  await assert.rejects(of_ben.rename(id, "Mine"), is(404));
  for (const work of [of_ann.server, of_ann.settings, of_ann.keys, of_ann.experiments]) await assert.rejects(work(), is(403));
  // An administrator's key makes keys of its own user, and revokes no other's.
  const tablet = await of_ben.make_key("tablet", ["talk"]);
  assert.equal(tablet.user, "ben");
  const of_tablet = new Api({ url, key: tablet.key });
  await assert.rejects(of_tablet.sessions(), is(403));
  const ids = (await of_ben.keys()).data.map((key) => key.user);
  assert.deepEqual(ids, ["ben", "ben"]);
  await assert.rejects(of_ben.revoke_key(ann.split("_")[1]!), is(404));
  await of_ben.revoke_key(tablet.id);
  await assert.rejects(of_tablet.sessions(), is(401));
  conversation.close();
  await guarded.stop();
});

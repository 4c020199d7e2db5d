// npm `openai`: realtime over `ws`.

import { once } from "node:events";
import net from "node:net";
import {
  ADDRESS, ATTEMPTS, CALL_TOKENS, LAMP, LONG_TOKENS, MODEL, SHORT_TOKENS, check, client, packages, run,
} from "./common.mjs";

const { OpenAIRealtimeWS } = packages("openai/realtime/ws");

class Talk {
  constructor(query = {}) {
    // The client knows only wss, and TLS is a reverse proxy's business: the connection starts behind that one.
    const [host, port] = ADDRESS.split(":");
    const createConnection = () => net.connect(Number(port), host);
    const parameters = new URLSearchParams({ model: MODEL, ...query });
    const buildRealtimeURL = () => new URL(`wss://${ADDRESS}/v1/realtime?${parameters}`);
    this.realtime = new OpenAIRealtimeWS({ model: MODEL, options: { createConnection }, buildRealtimeURL }, client());
    [this.events, this.wake] = [[], () => {}];
    const heard = (event) => {
      this.events.push(event);
      this.wake();
    };
    this.realtime.on("event", heard);
    this.realtime.on("error", (error) => heard({ type: "error", error: error.error ?? { message: String(error) } }));
  }

  send(type, more = {}) {
    this.realtime.send({ type, ...more });
  }

  ask(text, response) {
    const content = [{ type: "input_text", text }];
    this.send("conversation.item.create", { item: { type: "message", role: "user", content } });
    this.send("response.create", { response });
  }

  async next() {
    while (this.events.length === 0) await new Promise((resolve) => (this.wake = resolve));
    const event = this.events.shift();
    // A random model may be done in the moment in which it is interrupted.
    check(event.type !== "error" || event.error.code === "response_cancel_not_active", event);
    return event;
  }

  async until(type) {
    for (;;) {
      const event = await this.next();
      if (event.type === type) return event;
    }
  }

  async done() {
    const { response } = await this.until("response.done");
    check(["completed", "incomplete"].includes(response.status), response);
    return response;
  }

  async close() {
    const closed = once(this.realtime.socket, "close");
    this.realtime.close();
    await closed;
  }
}

async function everything() {
  let talk = new Talk();
  const { session } = await talk.until("session.created");
  const tools = [{ type: "function", ...LAMP }];
  talk.send("session.update", { session: { type: "realtime", output_modalities: ["text"], tools } });
  check((await talk.until("session.updated")).session.tools[0].name === LAMP.name, "the tools are not there");
  for (const turn of [1, 2, 3]) {
    talk.ask(`This is turn ${turn}.`, { max_output_tokens: SHORT_TOKENS, tool_choice: "none" });
    const { usage } = await talk.done();
    check(turn === 1 || usage.input_token_details.cached_tokens > 0, usage);
    console.log(`  turn ${turn}: ${usage.input_tokens} tokens in, ${usage.output_tokens} out`);
  }
  await aToolCall(talk);
  await anInterruption(talk);
  await talk.close();

  talk = new Talk({ session: session.id });
  check((await talk.until("session.created")).session.id === session.id, "another session");
  const { item } = await talk.until("conversation.item.added");
  check(item.content[0].text === "This is turn 1.", item);
  talk.ask("Are you still there?", { max_output_tokens: SHORT_TOKENS, tool_choice: "none" });
  await talk.done();
  await talk.close();
}

async function aToolCall(talk) {
  talk.ask("Switch on the lamp.", { max_output_tokens: CALL_TOKENS, tool_choice: "required" });
  const [call] = (await talk.done()).output;
  check(call.type === "function_call" && typeof JSON.parse(call.arguments).on === "boolean", call);
  console.log(`  the lamp is to be switched: ${call.arguments}`);
  const item = { type: "function_call_output", call_id: call.call_id, output: "done" };
  talk.send("conversation.item.create", { item });
  talk.send("response.create", { response: { max_output_tokens: SHORT_TOKENS, tool_choice: "none" } });
  await talk.done();
}

async function anInterruption(talk) {
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    talk.ask("Tell me a long story.", { max_output_tokens: LONG_TOKENS, tool_choice: "none" });
    let [heard, isCancelled] = ["", false];
    for (;;) {
      const event = await talk.next();
      if (event.type === "response.output_text.delta") heard += event.delta;
      if (heard.length > 10 && !isCancelled) {
        talk.send("response.cancel");
        isCancelled = true;
      }
      if (event.type !== "response.done") continue;
      if (event.response.status !== "cancelled") break;
      check(isCancelled, "nobody asked for that");
      return;
    }
  }
  throw new Error("the model never has much to say");
}

run(everything);

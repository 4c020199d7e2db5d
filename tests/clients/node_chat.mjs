// npm `openai`: chat completions.

import { ATTEMPTS, CALL_TOKENS, LAMP, LONG_TOKENS, MODEL, SHORT_TOKENS, check, client, run } from "./common.mjs";

const user = (content) => ({ role: "user", content });
const tool = { type: "function", function: LAMP };

async function threeTurns() {
  const openai = client();
  const messages = [{ role: "developer", content: "Be short." }];
  let promptTokens = 0;
  for (const turn of [0, 1, 2]) {
    messages.push(user(`This is turn ${turn}.`));
    const stream = await openai.chat.completions.create({
      model: MODEL,
      messages,
      max_completion_tokens: SHORT_TOKENS,
      stream: true,
      stream_options: { include_usage: true },
    });
    const ids = new Set();
    let [text, usage, finish] = ["", null, null];
    for await (const chunk of stream) {
      ids.add(chunk.id);
      text += chunk.choices[0]?.delta.content ?? "";
      finish = chunk.choices[0]?.finish_reason ?? finish;
      usage = chunk.usage ?? usage;
    }
    check(ids.size === 1, [...ids]);
    check(finish === "stop" || finish === "length", finish);
    check(usage.prompt_tokens > promptTokens && usage.completion_tokens <= SHORT_TOKENS, usage);
    check(turn === 0 || usage.prompt_tokens_details.cached_tokens > 0, usage);
    promptTokens = usage.prompt_tokens;
    messages.push({ role: "assistant", content: text });
    console.log(`  turn ${turn + 1}: ${usage.prompt_tokens} tokens in, ${usage.completion_tokens} out`);
  }
}

async function aToolCall() {
  const openai = client();
  const switched = [];
  const body = { model: MODEL, max_tokens: CALL_TOKENS, parallel_tool_calls: false, messages: [user("Light!")] };
  const choice = { type: "function", function: { name: LAMP.name } };
  const reply = await openai.chat.completions.create({ ...body, tools: [tool], tool_choice: choice });
  check(reply.choices[0].finish_reason === "tool_calls", reply);
  // The client's own helper puts the pieces together, calls the function and asks again with what it returned.
  const runs = { function: (args) => switched.push(args.on) && "done", parse: JSON.parse };
  const runner = openai.chat.completions.runTools(
    { ...body, stream: true, tools: [{ type: "function", function: { ...LAMP, ...runs } }], tool_choice: "required" },
    { maxChatCompletions: 2 },
  );
  await runner.done();
  check(switched.length > 0 && switched.every((on) => typeof on === "boolean"), switched);
  console.log(`  the lamp was switched: ${switched}`);
}

async function anInterruptionAndANewConnection() {
  const messages = [user("Tell me a long story.")];
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    const stream = await client().chat.completions.create({
      model: MODEL,
      messages,
      max_tokens: LONG_TOKENS,
      stream: true,
    });
    let [heard, isCut] = ["", false];
    for await (const chunk of stream) {
      heard += chunk.choices[0]?.delta.content ?? "";
      if (heard.length > 10) {
        isCut = true;
        stream.controller.abort();
        break;
      }
    }
    if (!isCut) continue;
    messages.push({ role: "assistant", content: heard }, user("Wait."));
    const reply = await client().chat.completions.create({ model: MODEL, messages, max_tokens: SHORT_TOKENS });
    check(["stop", "length"].includes(reply.choices[0].finish_reason), reply);
    check(reply.usage.prompt_tokens_details.cached_tokens > 0, reply.usage);
    return;
  }
  throw new Error("the model never has much to say");
}

run(threeTurns, aToolCall, anInterruptionAndANewConnection);

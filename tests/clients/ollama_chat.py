"""ollama-python, as Home Assistant's integration uses it."""

import json

from ollama import AsyncClient, ResponseError

from common import ADDRESS, ATTEMPTS, CALL_TOKENS, LAMP_CHAT_TOOL, LAMP_PARAMETERS, MODEL, SHORT_TOKENS, check, run, step


def client():
    return AsyncClient(host=f"http://{ADDRESS}")


async def models():
    ollama = client()
    names = [model.model for model in (await ollama.list()).models]
    check(names, "no models are listed")
    check((await ollama.ps()).models[0].model in names, "what runs is not listed")
    shown = await ollama.show(names[0])
    check("completion" in shown.capabilities, shown)
    check((await ollama.pull(names[0])).status == "success", "what is there was pulled")
    async for progress in await ollama.pull(names[0], stream=True):
        check(progress.status, progress)
    for call in (ollama.show("no-such-model"), ollama.pull("no-such-model"), ollama.chat("no-such-model", [])):
        try:
            await call
        except ResponseError as error:
            check(error.status_code == 404 and "no-such-model" in error.error, error)
        else:
            raise AssertionError("a model that is not there answered")


async def turns():
    """The whole log each turn, a large window, a model that stays loaded."""
    ollama = client()
    messages = [{"role": "system", "content": "Be short."}]
    for turn in range(3):
        messages.append({"role": "user", "content": f"This is turn {turn}."})
        text, last = "", None
        stream = await ollama.chat(model=MODEL, messages=messages, stream=True, tools=[], keep_alive=-1, think=False,
                                   options={"num_ctx": 8192, "num_predict": SHORT_TOKENS})
        async for part in stream:
            text += part.message.content or ""
            last = part
        check(last.done and last.done_reason in ("stop", "length"), last)
        check(0 < last.eval_count <= SHORT_TOKENS, last)
        check(last.prompt_eval_count > 0 and last.total_duration > 0, last)
        messages.append({"role": "assistant", "content": text})
        step(f"  turn {turn + 1}: {last.prompt_eval_count} tokens in, {last.eval_count} out")


async def a_call_and_its_result():
    """A random model calls when it likes: it is asked until it does."""
    ollama = client()
    question = [{"role": "user", "content": "Switch on the lamp."}]
    for attempt in range(ATTEMPTS):
        reply = await ollama.chat(model=MODEL, messages=question, tools=[LAMP_CHAT_TOOL],
                                  options={"num_predict": CALL_TOKENS, "seed": attempt})
        if reply.message.tool_calls:
            break
    calls = reply.message.tool_calls or [{"function": {"name": "switch_lamp", "arguments": {"on": True}}}]
    messages = question + [{"role": "assistant", "content": "", "tool_calls": calls}]
    # Home Assistant gives neither a name nor an id.
    messages += [{"role": "tool", "content": '{"data": "on", "error": false}'} for _ in calls]
    reply = await ollama.chat(model=MODEL, messages=messages, options={"num_predict": SHORT_TOKENS})
    check(reply.done, reply)


async def json_of_a_schema():
    ollama = client()
    reply = await ollama.chat(model=MODEL, messages=[{"role": "user", "content": "Is it on?"}], format=LAMP_PARAMETERS,
                              options={"num_predict": CALL_TOKENS})
    if reply.done_reason == "stop":
        check(isinstance(json.loads(reply.message.content)["on"], bool), reply)
    generated = await ollama.generate(model=MODEL, prompt="Hi.", options={"num_predict": SHORT_TOKENS})
    check(generated.done and generated.response is not None, generated)
    check((await ollama.generate(model=MODEL)).done_reason == "load", "nothing said loads the model")


run(models, turns, a_call_and_its_result, json_of_a_schema)

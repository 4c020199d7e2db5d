"""openai-python: chat completions."""

import json

from openai import AsyncOpenAI, NotFoundError

from common import (ATTEMPTS, CALL_TOKENS, HTTP_URL, KEY, LAMP_CHAT_TOOL, LONG_TOKENS, MODEL, SHORT_TOKENS, check, run,
                    step)


def client():
    return AsyncOpenAI(base_url=HTTP_URL, api_key=KEY, max_retries=0)


async def models():
    async with client() as openai:
        names = [model.id async for model in openai.models.list()]
        check(len(names) == 1, names)
        try:
            await openai.chat.completions.create(model="no-such-model", messages=[{"role": "user", "content": "Hi."}])
        except NotFoundError as error:
            check(error.code == "model_not_found", error)
        else:
            raise AssertionError("a model that is not there answered")


async def three_turns():
    async with client() as openai:
        messages = [{"role": "developer", "content": "Be short."}]
        prompt_tokens = 0
        for turn in range(3):
            messages.append({"role": "user", "content": [{"type": "text", "text": f"This is turn {turn}."}]})
            stream = await openai.chat.completions.create(
                model=MODEL, messages=messages, stream=True, max_completion_tokens=SHORT_TOKENS,
                stream_options={"include_usage": True},
            )
            chunks = [chunk async for chunk in stream]
            check(len({chunk.id for chunk in chunks}) == 1, "one reply has one id")
            check(chunks[0].choices[0].delta.role == "assistant", chunks[0])
            check(chunks[-1].choices == [] and chunks[-1].usage is not None, chunks[-1])
            check(all(chunk.usage is None for chunk in chunks[:-1]), "usage comes once")
            finish = [chunk.choices[0].finish_reason for chunk in chunks[:-1] if chunk.choices[0].finish_reason]
            check(finish in (["stop"], ["length"]), finish)
            usage = chunks[-1].usage
            check(usage.prompt_tokens > prompt_tokens, "the prompt grows by every turn")
            check(0 < usage.completion_tokens <= SHORT_TOKENS, usage)
            if turn:
                check(usage.prompt_tokens_details.cached_tokens > 0, "the past was read again")
            prompt_tokens = usage.prompt_tokens
            text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1])
            messages.append({"role": "assistant", "content": text})
            step(f"  turn {turn + 1}: {usage.prompt_tokens} tokens in, {usage.completion_tokens} out")


async def a_tool_call():
    async with client() as openai:
        messages = [{"role": "user", "content": "Switch on the lamp."}]
        required = dict(model=MODEL, tools=[LAMP_CHAT_TOOL], parallel_tool_calls=False, max_tokens=CALL_TOKENS)
        named = {"type": "function", "function": {"name": "switch_lamp"}}
        for choice in ("required", named):
            reply = await openai.chat.completions.create(messages=messages, tool_choice=choice, **required)
            check(reply.choices[0].finish_reason == "tool_calls", reply)
            (call,) = reply.choices[0].message.tool_calls
            check(call.function.name == "switch_lamp", call)
            check(isinstance(json.loads(call.function.arguments)["on"], bool), call)
        # In pieces, and with the client's own accumulator.
        async with openai.chat.completions.stream(messages=messages, tool_choice="required", **required) as stream:
            async for _ in stream:
                pass
            reply = await stream.get_final_completion()
        (call,) = reply.choices[0].message.tool_calls
        check(isinstance(json.loads(call.function.arguments)["on"], bool), call)
        messages.append(reply.choices[0].message.model_dump(include={"role", "content", "tool_calls"}))
        messages.append({"role": "tool", "tool_call_id": call.id, "content": "It is on."})
        reply = await openai.chat.completions.create(
            model=MODEL, messages=messages, tools=[LAMP_CHAT_TOOL], tool_choice="none", max_tokens=SHORT_TOKENS
        )
        check(not reply.choices[0].message.tool_calls, reply)
        check(reply.choices[0].finish_reason in ("stop", "length"), reply)


async def an_interruption_and_a_new_connection():
    messages = [{"role": "user", "content": "Tell me a long story."}]
    for _ in range(ATTEMPTS):
        async with client() as openai:
            stream = await openai.chat.completions.create(
                model=MODEL, messages=messages, stream=True, max_tokens=LONG_TOKENS
            )
            heard, is_cut = "", False
            async for chunk in stream:
                heard += chunk.choices[0].delta.content or ""
                if len(heard) > 10:
                    # The connection is closed in the middle of a reply, as when a person interrupts.
                    await stream.close()
                    is_cut = True
                    break
        if is_cut:
            break
    else:
        raise AssertionError("the model never has much to say")
    async with client() as openai:
        messages += [{"role": "assistant", "content": heard}, {"role": "user", "content": "Wait."}]
        reply = await openai.chat.completions.create(model=MODEL, messages=messages, max_tokens=SHORT_TOKENS)
        check(reply.choices[0].finish_reason in ("stop", "length"), reply)
        check(reply.usage.prompt_tokens_details.cached_tokens > 0, "the past was read again")


run(models, three_turns, a_tool_call, an_interruption_and_a_new_connection)

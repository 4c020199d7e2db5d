"""LiveKit Agents: `openai.LLM`, over chat completions."""

import json

from livekit.agents import llm
from livekit.plugins import openai

from common import ATTEMPTS, CALL_TOKENS, HTTP_URL, KEY, LONG_TOKENS, MODEL, SHORT_TOKENS, check, run, step
from livekit_lamp import switch_lamp


def model(max_tokens):
    return openai.LLM(model=MODEL, base_url=HTTP_URL, api_key=KEY, max_completion_tokens=max_tokens, max_retries=0)


async def reply(chat_ctx, max_tokens=SHORT_TOKENS, heard_chars=None, **more):
    """The chunks, up to the end or to where so much was heard."""
    heard, chunks = "", []
    async with model(max_tokens).chat(chat_ctx=chat_ctx, **more) as stream:
        async for chunk in stream:
            chunks.append(chunk)
            heard += (chunk.delta and chunk.delta.content) or ""
            if heard_chars is not None and len(heard) > heard_chars:
                break
    return heard, chunks


async def everything():
    chat_ctx = llm.ChatContext()
    chat_ctx.add_message(role="system", content="Be short.")
    prompt_tokens = 0
    for turn in range(3):
        chat_ctx.add_message(role="user", content=f"This is turn {turn}.")
        text, chunks = await reply(chat_ctx)
        (usage,) = [chunk.usage for chunk in chunks if chunk.usage]
        check(usage.prompt_tokens > prompt_tokens and usage.completion_tokens <= SHORT_TOKENS, usage)
        check(turn == 0 or usage.prompt_cached_tokens > 0, usage)
        prompt_tokens = usage.prompt_tokens
        chat_ctx.add_message(role="assistant", content=text)
        step(f"  turn {turn + 1}: {usage.prompt_tokens} tokens in, {usage.prompt_cached_tokens} known")
    await a_tool_call(chat_ctx)
    await an_interruption(chat_ctx)
    chat_ctx.add_message(role="user", content="Are you still there?")
    _, chunks = await reply(chat_ctx)
    check(any(chunk.usage for chunk in chunks), chunks)


async def a_tool_call(chat_ctx):
    chat_ctx.add_message(role="user", content="Switch on the lamp.")
    more = {"tools": [switch_lamp], "parallel_tool_calls": False}
    _, chunks = await reply(chat_ctx, CALL_TOKENS, tool_choice="required", **more)
    (call,) = [call for chunk in chunks if chunk.delta for call in chunk.delta.tool_calls]
    check(call.name == "switch_lamp" and isinstance(json.loads(call.arguments)["on"], bool), call)
    step(f"  the lamp is to be switched: {call.arguments}")
    chat_ctx.insert(llm.FunctionCall(call_id=call.call_id, name=call.name, arguments=call.arguments))
    chat_ctx.insert(llm.FunctionCallOutput(call_id=call.call_id, name=call.name, output="done", is_error=False))
    _, chunks = await reply(chat_ctx, tool_choice="none", **more)
    check(not any(chunk.delta.tool_calls for chunk in chunks if chunk.delta), chunks)


async def an_interruption(chat_ctx):
    chat_ctx.add_message(role="user", content="Tell me a long story.")
    for _ in range(ATTEMPTS):
        heard, chunks = await reply(chat_ctx, LONG_TOKENS, heard_chars=10)
        # The usage is the last thing of a reply that was heard to its end.
        if heard and not any(chunk.usage for chunk in chunks):
            chat_ctx.add_message(role="assistant", content=heard, interrupted=True)
            step("  interrupted")
            return
    raise AssertionError("the model never has much to say")


run(everything)

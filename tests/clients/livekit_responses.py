"""LiveKit Agents: `openai.responses.LLM`, over its websocket."""

import json

from livekit.agents import llm
from livekit.agents.utils import http_context
from livekit.plugins import openai

from common import CALL_TOKENS, KEY, STOCK_MODEL, WS_URL, check, run, step
from livekit_lamp import switch_lamp


def model(**settings):
    return openai.responses.LLM(model=STOCK_MODEL, base_url=f"{WS_URL}/responses", api_key=KEY,
                                max_output_tokens=CALL_TOKENS, **settings)


async def reply(service, chat_ctx, heard_chars=None, **more):
    """The chunks, up to the end or to where so much was heard."""
    heard, chunks = "", []
    async with service.chat(chat_ctx=chat_ctx, **more) as stream:
        async for chunk in stream:
            chunks.append(chunk)
            heard += (chunk.delta and chunk.delta.content) or ""
            if heard_chars is not None and len(heard) > heard_chars:
                break
    return heard, chunks


def usage_of(chunks):
    (usage,) = [chunk.usage for chunk in chunks if chunk.usage]
    return usage


async def everything():
    async with http_context.open():
        service = model()
        chat_ctx = llm.ChatContext()
        chat_ctx.add_message(role="system", content="Be short.")
        known = 0
        for question in ("Hello.", "What can you do?", "Thank you."):
            chat_ctx.add_message(role="user", content=question)
            before = service._prev_resp_id
            text, chunks = await reply(service, chat_ctx)
            usage = usage_of(chunks)
            check(text and usage.prompt_tokens > known, usage)
            check(not before or usage.prompt_cached_tokens > 0, usage)
            check(service._prev_resp_id not in ("", before), "the response's id is what the next one goes on from")
            known = usage.prompt_tokens
            chat_ctx.add_message(role="assistant", content=text)
        step(f"  three turns, {known} tokens in")
        await a_tool_call(service, chat_ctx)
        await an_interruption(service, chat_ctx)
        # A new client has no id and sends everything.
        chat_ctx.add_message(role="user", content="Are you still there?")
        text, chunks = await reply(model(), chat_ctx)
        check(usage_of(chunks).prompt_tokens > known, chunks)


async def a_tool_call(service, chat_ctx):
    chat_ctx.add_message(role="user", content="Switch on the lamp.")
    more = {"tools": [switch_lamp], "parallel_tool_calls": False}
    _, chunks = await reply(service, chat_ctx, tool_choice="required", **more)
    (call,) = [call for chunk in chunks if chunk.delta for call in chunk.delta.tool_calls]
    check(call.name == "switch_lamp" and isinstance(json.loads(call.arguments)["on"], bool), call)
    step(f"  the lamp is to be switched: {call.arguments}")
    chat_ctx.insert(llm.FunctionCall(call_id=call.call_id, name=call.name, arguments=call.arguments))
    chat_ctx.insert(llm.FunctionCallOutput(call_id=call.call_id, name=call.name, output="done", is_error=False))
    _, chunks = await reply(service, chat_ctx, tool_choice="none", **more)
    check(not any(chunk.delta.tool_calls for chunk in chunks if chunk.delta), chunks)


async def an_interruption(service, chat_ctx):
    chat_ctx.add_message(role="user", content="Tell me a story.")
    heard, _ = await reply(service, chat_ctx, heard_chars=1)
    # The client hangs up, and comes back on another connection.
    chat_ctx.add_message(role="assistant", content=heard, interrupted=True)
    chat_ctx.add_message(role="user", content="Thank you.")
    _, chunks = await reply(service, chat_ctx)
    check(usage_of(chunks).completion_tokens > 0, chunks)
    step("  interrupted")


run(everything)

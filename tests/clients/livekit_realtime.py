"""LiveKit Agents: `realtime.RealtimeModel`, in text. It keeps a mirror of the conversation that may not break."""

import asyncio
import json
import logging

import aiohttp
from livekit.agents import llm
from livekit.plugins import openai

from common import ATTEMPTS, CALL_TOKENS, HTTP_URL, KEY, LONG_TOKENS, MODEL, SHORT_TOKENS, check, run, step
from livekit_lamp import switch_lamp


class Complaints(logging.Handler):
    """Where the mirror breaks, the client logs it and goes on."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.heard = []

    def emit(self, record):
        self.heard.append(record.getMessage())


class Talk:
    def __init__(self, model):
        self.session = model.session()
        self.failed = asyncio.get_running_loop().create_future()
        self.session.on("error", lambda error: self.failed.done() or self.failed.set_result(error))

    async def unless_it_fails(self, future):
        """What the client heard; an error that it was told of, none that was asked for."""
        waiting = asyncio.ensure_future(future)
        await asyncio.wait((waiting, self.failed), return_when=asyncio.FIRST_COMPLETED)
        check(not self.failed.done(), self.failed.done() and self.failed.result())
        return await waiting

    async def add(self, *items):
        """Returns when the service has taken them."""
        chat_ctx = self.session.chat_ctx.copy()
        chat_ctx.items.extend(items)
        await self.unless_it_fails(self.session.update_chat_ctx(chat_ctx))

    async def ask(self, text):
        await self.add(llm.ChatMessage(role="user", content=[text]))

    async def reply(self, heard_chars=None, **more):
        """The message's id, what was heard of it, and the calls; interrupted where so much was heard."""
        generation = await self.unless_it_fails(self.session.generate_reply(**more))
        message_id, heard, is_interrupted = None, "", False
        async for message in generation.message_stream:
            message_id = message.message_id
            async for piece in message.text_stream:
                heard += piece
                if heard_chars is not None and len(heard) > heard_chars and not is_interrupted:
                    self.session.interrupt()
                    is_interrupted = True
        calls = [call async for call in generation.function_stream]
        check(not self.failed.done(), self.failed.done() and self.failed.result())
        return message_id, heard, calls, is_interrupted


def model(http):
    return openai.realtime.RealtimeModel(
        model=MODEL, base_url=HTTP_URL, api_key=KEY, modalities=["text"], turn_detection=None, http_session=http
    )


async def everything():
    complaints = Complaints()
    logging.getLogger("livekit").addHandler(complaints)
    async with aiohttp.ClientSession() as http:
        client = model(http)
        talk = Talk(client)
        asyncio.get_running_loop().set_exception_handler(without_spent_tokens)
        await talk.session.update_instructions("Be short.")
        await talk.session.update_tools([switch_lamp])
        talk.session.update_options(max_response_output_tokens=SHORT_TOKENS)
        for turn in range(3):
            await talk.ask(f"This is turn {turn}.")
            await talk.reply(tool_choice="none")
            step(f"  turn {turn + 1}")
        await a_tool_call(talk)
        await an_interruption(talk)
        await talk.ask("Never mind.")
        await talk.reply(tool_choice="none")
        said = talk.session.chat_ctx
        await talk.session.aclose()

        # A new connection is told what was said.
        talk = Talk(client)
        talk.session.update_options(max_response_output_tokens=SHORT_TOKENS)
        await talk.unless_it_fails(talk.session.update_chat_ctx(said))
        check(ids(talk) == [item.id for item in said.items], (ids(talk), said.items))
        await talk.ask("Are you still there?")
        await talk.reply(tool_choice="none")
        await talk.session.aclose()
        step("  connected again")
    check(not complaints.heard, complaints.heard)


def without_spent_tokens(loop, context):
    """A reply that spent its tokens is also an exception in a future, which the client alone could read."""
    if not isinstance(context.get("exception"), llm.RealtimeError):
        loop.default_exception_handler(context)


def ids(talk):
    return [item.id for item in talk.session.chat_ctx.items]


async def a_tool_call(talk):
    talk.session.update_options(max_response_output_tokens=CALL_TOKENS)
    await talk.ask("Switch on the lamp.")
    _, _, calls, _ = await talk.reply(tool_choice="required")
    call = calls[0]
    check(call.name == "switch_lamp" and isinstance(json.loads(call.arguments)["on"], bool), call)
    step(f"  the lamp is to be switched: {call.arguments}")
    talk.session.update_options(max_response_output_tokens=SHORT_TOKENS)
    output = llm.FunctionCallOutput(call_id=call.call_id, name=call.name, output="done", is_error=False)
    await talk.add(output)
    await talk.reply(tool_choice="none")


async def an_interruption(talk):
    talk.session.update_options(max_response_output_tokens=LONG_TOKENS)
    for _ in range(ATTEMPTS):
        await talk.ask("Tell me a long story.")
        message_id, heard, _, is_interrupted = await talk.reply(heard_chars=10, tool_choice="none")
        if is_interrupted:
            break
    else:
        raise AssertionError("the model never has much to say")
    talk.session.update_options(max_response_output_tokens=SHORT_TOKENS)
    # It is deleted and created again under its id, with what was heard, and stands where it stood.
    before = ids(talk)
    check(message_id in before, (message_id, before))
    said = talk.session.chat_ctx.copy()
    said.items[before.index(message_id)].content = [heard[:10]]
    await talk.unless_it_fails(talk.session.update_chat_ctx(said))
    check(ids(talk) == before, (ids(talk), before))
    kept = talk.session.chat_ctx.get_by_id(message_id)
    check(kept.text_content == heard[:10], (kept, heard))
    step("  interrupted")


run(everything)

"""openai-python: a tool that is called by voice, and a connection that resumes with audio."""

import base64
import json

from openai import AsyncOpenAI

from common import HTTP_URL, KEY, LAMP_REALTIME_TOOL, WS_URL, check, run, step
from speech import UTTERANCE, base64_pieces


def connect(**query):
    client = AsyncOpenAI(base_url=HTTP_URL, websocket_base_url=WS_URL, api_key=KEY, max_retries=0)
    return client.realtime.connect(model="gpt-realtime", extra_query=query)


async def until(connection, kind):
    seen = []
    async for event in connection:
        seen.append(event)
        check(event.type != "error", event)
        if event.type == kind:
            return seen
    raise AssertionError(f"the connection ended before {kind}")


async def hear(connection, audio):
    for piece in base64_pieces(audio):
        await connection.input_audio_buffer.append(audio=piece)


def spoken(events):
    return sum(len(base64.b64decode(event.delta)) for event in events if event.type == "response.output_audio.delta")


async def everything():
    async with connect() as connection:
        session_id = (await until(connection, "session.created"))[0].session.id
        await connection.session.update(session={"type": "realtime", "tools": [LAMP_REALTIME_TOOL]})
        await hear(connection, UTTERANCE)
        response = (await until(connection, "response.done"))[-1].response
        call = next(item for item in response.output if item.type == "function_call")
        check(call.name == "switch_lamp" and json.loads(call.arguments) == {"on": True}, call)
        step(f"  the lamp is to be switched: {call.arguments}")
        output = {"type": "function_call_output", "call_id": call.call_id, "output": "done"}
        await connection.conversation.item.create(item=output)
        await connection.response.create()
        events = await until(connection, "response.done")
        check(events[-1].response.output[0].content[0].transcript == "The lamp is on now.", events[-1])
        check(spoken(events) > 20_000, spoken(events))
        step(f"  told in {spoken(events)} bytes of speech")
    async with connect(session=session_id) as connection:
        created = (await until(connection, "session.created"))[0].session
        check(created.id == session_id and created.output_modalities == ["audio"], created)
        await connection.session.update(session={"type": "realtime", "tools": []})
        await hear(connection, UTTERANCE)
        events = await until(connection, "response.done")
        check(spoken(events) > 20_000, spoken(events))
        step("  connected again, and spoken to")


run(everything)

"""openai-python: `realtime.connect` in audio, with the defaults of the protocol."""

import base64

from openai import AsyncOpenAI

from common import HTTP_URL, KEY, WS_URL, check, run, step
from speech import UTTERANCE, base64_pieces, silence, voice


def connect():
    client = AsyncOpenAI(base_url=HTTP_URL, websocket_base_url=WS_URL, api_key=KEY, max_retries=0)
    return client.realtime.connect(model="gpt-realtime")


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


def place(types, kind):
    check(kind in types, (kind, types))
    return types.index(kind)


async def everything():
    async with connect() as connection:
        session = (await until(connection, "session.created"))[0].session
        check(session.output_modalities == ["audio"], session)
        check(session.audio.input.turn_detection.type == "server_vad", session)
        check(session.audio.output.format.rate == 24000, session)
        for turn in range(2):
            await hear(connection, UTTERANCE)
            events = await until(connection, "response.done")
            types = [event.type for event in events]
            order = ["input_audio_buffer.speech_started", "input_audio_buffer.speech_stopped",
                     "input_audio_buffer.committed", "conversation.item.added", "response.created",
                     "response.output_audio.delta", "response.output_audio.done", "response.done"]
            check([place(types, kind) for kind in order] == sorted(place(types, kind) for kind in order), types)
            said = next(event for event in events if event.type.endswith("transcription.completed"))
            check(said.transcript and said.usage.type == "duration", said)
            told = "".join(event.delta for event in events if event.type == "response.output_audio_transcript.delta")
            response = events[-1].response
            check(response.status == "completed" and response.output[0].content[0].transcript == told, response)
            audio = b"".join(base64.b64decode(event.delta) for event in events if event.type == "response.output_audio.delta")
            # The scripted voice takes 60 ms for a character.
            check(abs(len(audio) - len(told.strip()) * 2880) < 2880 * 3, (len(audio), told))
            step(f"  turn {turn + 1}: {said.transcript} {told}")
        await by_hand(connection)
        await barge_in(connection)


async def by_hand(connection):
    await connection.session.update(session={"type": "realtime", "audio": {"input": {"turn_detection": None}}})
    await until(connection, "session.updated")
    await hear(connection, voice(600))
    await connection.input_audio_buffer.commit()
    await connection.response.create()
    response = (await until(connection, "response.done"))[-1].response
    check(response.status == "completed", response)
    step("  a turn by hand")


async def barge_in(connection):
    turns = {"type": "server_vad", "silence_duration_ms": 300}
    await connection.session.update(session={"type": "realtime", "audio": {"input": {"turn_detection": turns}}})
    await until(connection, "session.updated")
    await hear(connection, UTTERANCE)
    events = await until(connection, "response.output_audio.delta")
    item_id = events[-1].item_id
    await hear(connection, silence(100) + voice(400))
    await until(connection, "input_audio_buffer.speech_started")
    await connection.conversation.item.truncate(item_id=item_id, content_index=0, audio_end_ms=400)
    await until(connection, "conversation.item.truncated")
    await connection.conversation.item.retrieve(item_id=item_id)
    item = (await until(connection, "conversation.item.retrieved"))[-1].item
    # At most six characters of 60 ms.
    check(len(item.content[0].transcript or "") <= 7, item)
    await hear(connection, silence(900))
    response = (await until(connection, "response.done"))[-1].response
    check(response.status in ("completed", "cancelled"), response)
    step(f"  interrupted after: {item.content[0].transcript}")


run(everything)

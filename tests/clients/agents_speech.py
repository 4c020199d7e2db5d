"""OpenAI Agents SDK: a realtime session in its default mode, which is audio."""

import asyncio

from agents.realtime import RealtimeAgent, RealtimeRunner

from common import KEY, WS_URL, check, run, step
from speech import UTTERANCE, paced, pieces, silence, voice


async def everything():
    agent = RealtimeAgent(name="Assistant", instructions="Be short.")
    config = {"url": f"{WS_URL}/realtime?model=gpt-realtime", "api_key": KEY}
    async with await RealtimeRunner(agent).run(model_config=config) as session:
        events = aiter(session)

        async def until(kind, seen=None):
            while True:
                event = await anext(events)
                check(event.type not in ("error", "exception"), event)
                is_server = event.type == "raw_model_event" and event.data.type == "raw_server_event"
                if seen is not None:
                    seen.append(event)
                if event.type == kind or is_server and event.data.data["type"] == kind:
                    return event

        await until("session.created")
        for turn in range(2):
            for piece in pieces(UTTERANCE):
                await session.send_audio(piece)
            seen = []
            await until("response.done", seen)
            audio = b"".join(event.audio.data for event in seen if event.type == "audio")
            check(len(audio) > 20_000, len(audio))
            step(f"  turn {turn + 1}: {len(audio)} bytes of speech")
        # It is interrupted by voice, while it plays.
        for piece in pieces(UTTERANCE):
            await session.send_audio(piece)
        await until("audio")
        await paced(silence(100) + voice(500) + silence(1000), session.send_audio)
        await until("audio_interrupted")
        step("  interrupted")
        await until("response.done")
        await asyncio.sleep(0.2)


run(everything)

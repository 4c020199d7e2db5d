"""LiveKit Agents: `realtime.RealtimeModel` in its default mode, which is audio."""

import asyncio
import logging

import aiohttp
from livekit import rtc
from livekit.plugins import openai

from common import HTTP_URL, KEY, check, run, step
from speech import RATE, Microphone, voice


class Complaints(logging.Handler):
    def __init__(self):
        super().__init__(logging.WARNING)
        self.heard = []

    def emit(self, record):
        self.heard.append(record.getMessage())


def frame(piece):
    return rtc.AudioFrame(data=piece, sample_rate=RATE, num_channels=1, samples_per_channel=len(piece) // 2)


async def spoken(generation):
    """What was said, as words and as seconds."""
    async for message in generation.message_stream:
        words, samples = [], 0

        async def read():
            async for piece in message.text_stream:
                words.append(str(piece))

        reading = asyncio.create_task(read())
        async for audio in message.audio_stream:
            samples += audio.samples_per_channel
        await reading
        return message.message_id, "".join(words), samples / RATE
    raise AssertionError("nothing was said")


async def everything():
    complaints = Complaints()
    logging.getLogger("livekit").addHandler(complaints)
    async with aiohttp.ClientSession() as http:
        session = openai.realtime.RealtimeModel(
            model="gpt-realtime", base_url=HTTP_URL, api_key=KEY, http_session=http
        ).session()
        generations, started, failed = asyncio.Queue(), asyncio.Event(), []
        session.on("generation_created", generations.put_nowait)
        session.on("input_speech_started", lambda _: started.set())
        session.on("error", failed.append)

        async def push(piece):
            session.push_audio(frame(piece))

        # Its turns end by what was said, for which it hears on: a microphone that stops would leave the last one open.
        microphone = Microphone(push)
        for turn in range(2):
            microphone.say(voice(900))
            _, words, seconds = await spoken(await generations.get())
            check(words and abs(seconds - 0.06 * len(words.strip())) < 0.3, (words, seconds))
            step(f"  turn {turn + 1}: {words} in {seconds:.2f} s")
        # A voice interrupts, and the player tells how far it had come.
        microphone.say(voice(900))
        message_id, words, _ = await spoken(await generations.get())
        started.clear()
        microphone.say(voice(500))
        await started.wait()
        session.truncate(message_id=message_id, modalities=["audio"], audio_end_ms=300)
        await spoken(await generations.get())
        step("  interrupted")
        microphone.off()
        await session.aclose()
    check(not failed, failed)
    check(not complaints.heard, complaints.heard)


run(everything)

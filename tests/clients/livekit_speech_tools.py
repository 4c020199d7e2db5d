"""LiveKit Agents: a tool that is called by voice, and a connection that resumes with audio."""

import asyncio
import json

import aiohttp
from livekit import rtc
from livekit.agents import llm
from livekit.plugins import openai

from common import HTTP_URL, KEY, check, run, step
from livekit_lamp import switch_lamp
from speech import RATE, Microphone, voice


def frame(piece):
    return rtc.AudioFrame(data=piece, sample_rate=RATE, num_channels=1, samples_per_channel=len(piece) // 2)


async def reply(generation):
    """The seconds that were spoken, and the calls."""
    samples = 0
    async for message in generation.message_stream:
        async for audio in message.audio_stream:
            samples += audio.samples_per_channel
    return samples / RATE, [call async for call in generation.function_stream]


class Talk:
    def __init__(self, model):
        self.session = model.session()
        self.generations, self.failed = asyncio.Queue(), []
        self.session.on("generation_created", self.generations.put_nowait)
        self.session.on("error", self.failed.append)
        self.microphone = Microphone(self.push)

    async def push(self, piece):
        self.session.push_audio(frame(piece))

    async def close(self):
        self.microphone.off()
        await self.session.aclose()
        check(not self.failed, self.failed)


async def everything():
    async with aiohttp.ClientSession() as http:
        model = openai.realtime.RealtimeModel(model="gpt-realtime", base_url=HTTP_URL, api_key=KEY, http_session=http)
        talk = Talk(model)
        await talk.session.update_tools([switch_lamp])
        talk.microphone.say(voice(900))
        _, calls = await reply(await talk.generations.get())
        check(calls and calls[0].name == "switch_lamp" and json.loads(calls[0].arguments) == {"on": True}, calls)
        step(f"  the lamp is to be switched: {calls[0].arguments}")
        output = llm.FunctionCallOutput(call_id=calls[0].call_id, name="switch_lamp", output="done", is_error=False)
        chat_ctx = talk.session.chat_ctx.copy()
        chat_ctx.items.append(output)
        await talk.session.update_chat_ctx(chat_ctx)
        seconds, _ = await reply(await talk.session.generate_reply())
        check(seconds > 0.5, seconds)
        step(f"  told in {seconds:.2f} s of speech")
        said = talk.session.chat_ctx
        await talk.close()

        # A new connection is told what was said, as text.
        talk = Talk(model)
        await talk.session.update_chat_ctx(said)
        talk.microphone.say(voice(900))
        seconds, _ = await reply(await talk.generations.get())
        check(seconds > 0.5, seconds)
        await talk.close()
        step("  connected again, and spoken to")


run(everything)

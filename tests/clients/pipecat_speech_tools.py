"""Pipecat: a tool that is called by voice, and a connection that resumes with audio."""

import pipecat_talk
from pipecat.frames.frames import InputAudioRawFrame, TTSAudioRawFrame, TTSStoppedFrame
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.services.openai.realtime.events import SessionProperties
from pipecat.services.openai.realtime.llm import OpenAIRealtimeLLMService

from common import KEY, WS_URL, check, run, step
from speech import RATE, UTTERANCE, paced

pipecat_talk.KEPT += (TTSAudioRawFrame, TTSStoppedFrame)


def service(**properties):
    settings = OpenAIRealtimeLLMService.Settings(session_properties=SessionProperties(**properties))
    return OpenAIRealtimeLLMService(api_key=KEY, base_url=f"{WS_URL}/realtime", settings=settings)


async def speak(talk):
    async def send(piece):
        await talk.worker.queue_frame(InputAudioRawFrame(audio=piece, sample_rate=RATE, num_channels=1))

    await paced(UTTERANCE, send)


async def spoken(talk):
    audio = 0
    while not isinstance(frame := await talk.next(), TTSStoppedFrame):
        audio += len(frame.audio) if isinstance(frame, TTSAudioRawFrame) else 0
    check(audio > 20_000, audio)
    return audio


async def everything():
    llm, context = service(tools=pipecat_talk.LAMP), LLMContext()

    async def switch_lamp(params):
        await params.result_callback({"done": True})

    llm.register_function("switch_lamp", switch_lamp)
    async with pipecat_talk.pipeline(llm, context, asks_the_model=True) as talk:
        await speak(talk)
        await talk.tool_result()
        step(f"  told in {await spoken(talk)} bytes of speech")
    # A new connection gets what was said from the client.
    async with pipecat_talk.pipeline(service(), context, asks_the_model=True) as talk:
        await speak(talk)
        await spoken(talk)
        step("  connected again, and spoken to")


run(everything)

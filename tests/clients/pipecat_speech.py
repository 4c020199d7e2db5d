"""Pipecat: `OpenAIRealtimeLLMService` in its default mode, which is audio. It sends an empty session and relies on defaults."""

import pipecat_talk
from pipecat.frames.frames import InputAudioRawFrame, InterruptionFrame, TTSAudioRawFrame, TTSStoppedFrame
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.services.openai.realtime.llm import OpenAIRealtimeLLMService

from common import KEY, WS_URL, check, run, step
from speech import RATE, UTTERANCE, paced, silence, voice

pipecat_talk.KEPT += (InterruptionFrame, TTSAudioRawFrame, TTSStoppedFrame)


async def until(talk, kind):
    """The bytes of speech up to the first frame of this kind."""
    audio = 0
    while not isinstance(frame := await talk.next(), kind):
        audio += len(frame.audio) if isinstance(frame, TTSAudioRawFrame) else 0
    return audio


async def everything():
    llm = OpenAIRealtimeLLMService(api_key=KEY, base_url=f"{WS_URL}/realtime")
    async with pipecat_talk.pipeline(llm, LLMContext(), asks_the_model=True) as talk:

        async def send(piece):
            await talk.worker.queue_frame(InputAudioRawFrame(audio=piece, sample_rate=RATE, num_channels=1))

        for turn in range(2):
            await paced(UTTERANCE, send)
            audio = await until(talk, TTSStoppedFrame)
            check(audio > 20_000, audio)
            step(f"  turn {turn + 1}: {audio} bytes of speech")
        await paced(UTTERANCE, send)
        await until(talk, TTSAudioRawFrame)
        await paced(silence(100) + voice(500), send)
        await until(talk, InterruptionFrame)
        await paced(silence(900), send)
        await until(talk, TTSAudioRawFrame)
        step("  interrupted, and answered again")


run(everything)

"""Real ears and a real voice over Wyoming: pocketsphinx hears, and espeak-ng speaks and tells the times of its words.

Prints its address. Needs PyPI's wyoming and pocketsphinx, and Debian's libespeak-ng1.
"""

import asyncio
import struct
import threading

import espeak_words
from pocketsphinx import Decoder
from wyoming.asr import Transcript
from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.event import async_read_event, async_write_event
from wyoming.info import AsrModel, AsrProgram, Attribution, Describe, Info, TtsProgram, TtsVoice
from wyoming.tts import Synthesize

HEARD_RATE = 16000
CHUNK = 1024
ONE_AT_A_TIME = threading.Lock()

library, rate = espeak_words.open_library()
decoder = Decoder(samprate=HEARD_RATE, loglevel="FATAL")

WHOSE = Attribution(name="tests", url="")
COMMON = {"attribution": WHOSE, "installed": True, "description": None, "version": None}
INFO = Info(
    asr=[AsrProgram(name="pocketsphinx", models=[AsrModel(name="en-us", languages=["en"], **COMMON)], **COMMON)],
    tts=[TtsProgram(name="espeak-ng", voices=[TtsVoice(name="en", languages=["en"], **COMMON)], **COMMON)],
)


def hear(audio):
    with ONE_AT_A_TIME:
        decoder.start_utt()
        decoder.process_raw(audio, full_utt=True)
        decoder.end_utt()
        found = decoder.hyp()
        return found.hypstr if found else ""


def speak(text):
    with ONE_AT_A_TIME:
        return espeak_words.speak(library, text)


async def say(writer, text):
    samples, words = await asyncio.to_thread(speak, text)
    start = AudioStart(rate=rate, width=2, channels=1).event()
    start.data["timestamps"] = [{"word": word, "start_time": ms / 1000} for ms, word in words]
    await async_write_event(start, writer)
    for at in range(0, len(samples), CHUNK):
        piece = samples[at : at + CHUNK]
        audio = struct.pack(f"<{len(piece)}h", *piece)
        await async_write_event(AudioChunk(rate=rate, width=2, channels=1, audio=audio).event(), writer)
    await async_write_event(AudioStop().event(), writer)


async def serve(reader, writer):
    audio = bytearray()
    while (event := await async_read_event(reader)) is not None:
        if Describe.is_type(event.type):
            await async_write_event(INFO.event(), writer)
        elif AudioChunk.is_type(event.type):
            audio += AudioChunk.from_event(event).audio
        elif AudioStop.is_type(event.type):
            text = await asyncio.to_thread(hear, bytes(audio))
            audio.clear()
            await async_write_event(Transcript(text=text).event(), writer)
        elif Synthesize.is_type(event.type):
            await say(writer, Synthesize.from_event(event).text)
    writer.close()


async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(f"wyoming://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


asyncio.run(main())

"""openai-python with real ears and a real voice: what is said is recognised, answered, and cut to the words that were heard."""

import base64
import re
import subprocess
import wave

import espeak_words
from openai import AsyncOpenAI

from common import HTTP_URL, KEY, WS_URL, check, run, step
from speech import RATE, base64_pieces, silence

SAID = "what can you do"


def spoken_by_flite(text):
    """Speech of another program than the one that answers, at the protocol's rate."""
    subprocess.run(["flite", "-voice", "slt", "-t", text, "-o", "said.wav"], check=True)
    with wave.open("said.wav") as file:
        check((file.getframerate(), file.getsampwidth()) == (16000, 2), file.getparams())
        samples = memoryview(file.readframes(file.getnframes())).cast("h")
    out = bytearray()
    for at in range(len(samples) * RATE // 16000 - 2):
        whole, part = divmod(at * 16000, RATE)
        value = samples[whole] + (samples[whole + 1] - samples[whole]) * part // RATE
        out += int(value).to_bytes(2, "little", signed=True)
    return bytes(out)


def word_times(text):
    """Begins of the words of a reply, whose sentences are said one behind the other, and how long it is."""
    library, rate = espeak_words.open_library()
    begins, at = [], 0.0
    for sentence in re.split(r"(?<=[.!?]) ", text):
        samples, words = espeak_words.speak(library, sentence)
        begins += [at + ms for ms, _ in words]
        at += len(samples) * 1000 / rate
    return begins, at


async def until(connection, kind):
    seen = []
    async for event in connection:
        seen.append(event)
        check(event.type != "error", event)
        if event.type == kind:
            return seen
    raise AssertionError(f"the connection ended before {kind}")


async def everything():
    client = AsyncOpenAI(base_url=HTTP_URL, websocket_base_url=WS_URL, api_key=KEY, max_retries=0)
    async with client.realtime.connect(model="gpt-realtime") as connection:
        for piece in base64_pieces(silence(500) + spoken_by_flite(SAID) + silence(1500)):
            await connection.input_audio_buffer.append(audio=piece)
        events = await until(connection, "response.done")
        heard = next(event for event in events if event.type.endswith("transcription.completed")).transcript
        check(heard.lower().strip(" .?") == SAID, heard)
        item = events[-1].response.output[0]
        text = item.content[0].transcript
        audio = sum(len(base64.b64decode(event.delta)) for event in events if event.type == "response.output_audio.delta")
        begins, length = word_times(text)
        # The reply is said in pieces, and the voice pauses differently between them.
        check(abs(audio / 48 - length) < length / 10, (audio / 48, length))
        check(len(begins) == len(text.split()), (begins, text))
        step(f"  heard: {heard}; said in {length:.0f} ms: {text}")
        for share in (0.95, 0.8, 0.65, 0.5, 0.35, 0.2, 0.05):
            ms = int(length * share)
            await connection.conversation.item.truncate(item_id=item.id, content_index=0, audio_end_ms=ms)
            await until(connection, "conversation.item.truncated")
            await connection.conversation.item.retrieve(item_id=item.id)
            kept = (await until(connection, "conversation.item.retrieved"))[-1].item.content
            kept = (kept[0].transcript or "") if kept else ""
            begun = sum(begin <= ms for begin in begins)
            # Half a word never stays, and one that has begun may go.
            check(text.startswith(kept) and len(kept.split()) in (begun - 1, begun), (ms, kept, begun))
        step("  cut to the word at seven places")


run(everything)

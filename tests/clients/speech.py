"""What the scripts that speak share: a voice for the microphone, and what the scripted ears and voice say."""

import asyncio
import base64
import os

RATE = 24000
# Samples of 16 bits that a detector takes for a voice.
with open(os.environ["REPRISE_SPEECH"], "rb") as file:
    VOICE = file.read()


def silence(ms):
    return bytes(2 * RATE * ms // 1000)


def voice(ms):
    return VOICE[: 2 * RATE * ms // 1000]


def pieces(audio, ms=20):
    size = 2 * RATE * ms // 1000
    return [audio[at : at + size] for at in range(0, len(audio), size)]


def base64_pieces(audio, ms=20):
    return [base64.b64encode(piece).decode() for piece in pieces(audio, ms)]


# An utterance with the silence that ends it.
UTTERANCE = silence(300) + voice(900) + silence(1100)


async def paced(audio, send, ms=20):
    """Sends audio in its own time, as a microphone does."""
    clock = asyncio.get_running_loop()
    begun = clock.time()
    for number, piece in enumerate(pieces(audio, ms)):
        await send(piece)
        await asyncio.sleep(max(0, begun + (number + 1) * ms / 1000 - clock.time()))


class Microphone:
    """A microphone that is on: it sends what is said into it, and silence in between."""

    def __init__(self, send, ms=20):
        self.send, self.ms, self.waiting = send, ms, []
        self.running = asyncio.create_task(self.run())

    def say(self, audio):
        self.waiting += pieces(audio, self.ms)

    async def run(self):
        clock = asyncio.get_running_loop()
        due = clock.time()
        while True:
            await self.send(self.waiting.pop(0) if self.waiting else silence(self.ms))
            due += self.ms / 1000
            await asyncio.sleep(max(0, due - clock.time()))

    def off(self):
        self.running.cancel()

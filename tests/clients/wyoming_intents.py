"""Device control through the Wyoming library: the service calls, Home Assistant carries it out."""

import os

from wyoming.asr import Transcript
from wyoming.client import AsyncTcpClient
from wyoming.handle import Handled
from wyoming.info import Describe, Info
from wyoming.intent import Intent

from common import check, run

HOST, PORT = os.environ["REPRISE_WYOMING"].rsplit(":", 1)
KITCHEN = {"conversation_id": "01K", "satellite_id": "assist_satellite.kitchen"}


def client():
    return AsyncTcpClient(HOST, int(PORT))


async def control_is_announced():
    async with client() as wyoming:
        await wyoming.write_event(Describe().event())
        info = Info.from_event(await wyoming.read_event())
        check(info.handle[0].supports_home_control, info)


async def last_event(text):
    """What Home Assistant reads as the end of the turn."""
    async with client() as wyoming:
        await wyoming.write_event(Transcript(text=text, language="en", context=KITCHEN).event())
        while True:
            event = await wyoming.read_event()
            check(event is not None, "the connection was lost")
            if Intent.is_type(event.type) or Handled.is_type(event.type):
                return event


async def a_device_and_then_words():
    intent = Intent.from_event(await last_event("Dim the lamp."))
    check(intent.name == "HassLightSet" and intent.text == "Dimming it.", intent)
    slots = {entity.name: {"value": entity.value} for entity in intent.entities}
    check(slots == {"name": {"value": "lamp"}, "brightness": {"value": 30}}, slots)
    check(intent.context["conversation_id"] == "01K", intent)
    check(Handled.from_event(await last_event("Thanks.")).text == "You are welcome.", "the conversation goes on")


run(control_is_announced, a_device_and_then_words)

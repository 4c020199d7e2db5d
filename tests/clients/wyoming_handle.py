"""The Wyoming library, as Home Assistant's integration of that name uses it."""

import asyncio
import json
import os
import urllib.request

from wyoming.asr import Transcript
from wyoming.client import AsyncTcpClient
from wyoming.error import Error
from wyoming.handle import Handled, HandledChunk, HandledStart, HandledStop, NotHandled
from wyoming.info import Describe, Info

from common import ADDRESS, check, run, step

HOST, PORT = os.environ["REPRISE_WYOMING"].rsplit(":", 1)
# Home Assistant gives up on an info that takes longer.
INFO_S = 5
KITCHEN = {"device_id": "d1", "satellite_id": "assist_satellite.kitchen"}


def client():
    return AsyncTcpClient(HOST, int(PORT))


def get(path):
    with urllib.request.urlopen(f"http://{ADDRESS}{path}") as response:
        return json.load(response)


async def describe():
    """On each start, and every half minute."""
    for _ in range(3):
        async with client() as wyoming, asyncio.timeout(INFO_S):
            await wyoming.write_event(Describe().event())
            while True:
                event = await wyoming.read_event()
                check(event is not None, "no info came")
                if Info.is_type(event.type):
                    break
            info = Info.from_event(event)
    installed = [program for program in info.handle if program.installed]
    check(len(installed) == 1 and not info.intent, info)
    check(installed[0].name == "reprise" and installed[0].models[0].installed, installed)
    # Any language.
    check(all(not model.languages for model in installed[0].models), installed)
    check(installed[0].supports_handled_streaming and not installed[0].supports_home_control, installed)


async def turn(text, context):
    """Reads as Home Assistant does: until something is to be said."""
    async with client() as wyoming:
        await wyoming.write_event(Transcript(text=text, language="en", context=context).event())
        while True:
            event = await wyoming.read_event()
            check(event is not None, "the connection was lost")
            if Handled.is_type(event.type):
                return Handled.from_event(event)
            check(not NotHandled.is_type(event.type) and not Error.is_type(event.type), event)


async def turns():
    """A satellite goes on where it was, also when Home Assistant has given up the conversation."""
    for conversation in ("01K0000000000000000000000A", "01K0000000000000000000000B"):
        handled = await turn(f"This is {conversation}.", {"conversation_id": conversation, **KITCHEN})
        check(handled.text is not None and handled.context["conversation_id"] == conversation, handled)
        step(f"  {handled.text!r:.60}")
    await turn("I am on a phone.", {"conversation_id": "01K0000000000000000000000C"})
    sessions = {session["title"]: session["id"] for session in get("/v1/sessions")["data"]}
    check(sorted(sessions) == ["conversation 01K0000000000000000000000C", "satellite assist_satellite.kitchen"], sessions)
    items = get(f"/v1/sessions/{sessions['satellite assist_satellite.kitchen']}/items")["data"]
    said = [item for item in items if item["body"].get("role") == "user"]
    check(len(said) == 2, items)


async def streamed():
    """A client that speaks while the reply comes."""
    async with client() as wyoming:
        await wyoming.write_event(Transcript(text="Tell me more.", context=KITCHEN).event())
        kinds, pieces = [], ""
        while not kinds or not HandledStop.is_type(kinds[-1]):
            event = await wyoming.read_event()
            check(event is not None, kinds)
            kinds.append(event.type)
            if HandledChunk.is_type(event.type):
                pieces += HandledChunk.from_event(event).text
            if Handled.is_type(event.type):
                check(Handled.from_event(event).text == pieces, event)
        check(HandledStart.is_type(kinds[0]) and Handled.is_type(kinds[-2]), kinds)


async def mistakes():
    async with client() as wyoming:
        await wyoming.write_event(Transcript(text="").event())
        error = Error.from_event(await wyoming.read_event())
        check(error.code == "nothing_said" and error.text, error)


run(describe, turns, streamed, mistakes)

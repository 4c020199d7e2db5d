"""OpenAI Agents SDK: a tool that is called by voice, and a connection that resumes with audio."""

from agents import function_tool
from agents.realtime import RealtimeAgent, RealtimeRunner

from common import KEY, WS_URL, check, run, step
from speech import UTTERANCE, pieces


@function_tool
async def switch_lamp(on: bool) -> str:
    """Switches the lamp."""
    return "done"


async def talking(tools, **query):
    query = "".join(f"&{name}={value}" for name, value in query.items())
    agent = RealtimeAgent(name="Assistant", instructions="Be short.", tools=tools)
    config = {"url": f"{WS_URL}/realtime?model=gpt-realtime{query}", "api_key": KEY}
    return await RealtimeRunner(agent).run(model_config=config)


async def until(events, kind, seen):
    while True:
        event = await anext(events)
        check(event.type not in ("error", "exception"), event)
        is_server = event.type == "raw_model_event" and event.data.type == "raw_server_event"
        seen.append(event)
        if event.type == kind or is_server and event.data.data["type"] == kind:
            return event


def spoken(seen):
    return sum(len(event.audio.data) for event in seen if event.type == "audio")


async def everything():
    async with await talking([switch_lamp]) as session:
        events, seen = aiter(session), []
        session_id = (await until(events, "session.created", seen)).data.data["session"]["id"]
        for piece in pieces(UTTERANCE):
            await session.send_audio(piece)
        ended = await until(events, "tool_end", seen)
        check(ended.output == "done", ended)
        seen = []
        await until(events, "audio_end", seen)
        check(spoken(seen) > 20_000, spoken(seen))
        step(f"  the lamp was switched: {ended.arguments}, and told in {spoken(seen)} bytes of speech")
    async with await talking([], session=session_id) as session:
        events, seen = aiter(session), []
        created = await until(events, "session.created", seen)
        check(created.data.data["session"]["id"] == session_id, created)
        for piece in pieces(UTTERANCE):
            await session.send_audio(piece)
        await until(events, "audio_end", seen)
        check(spoken(seen) > 20_000, spoken(seen))
        step("  connected again, and spoken to")


run(everything)

"""OpenAI Agents SDK: a realtime session, in text."""

from agents import function_tool
from agents.realtime import RealtimeAgent, RealtimeRunner
from agents.realtime.model_inputs import RealtimeModelSendSessionUpdate

from common import ATTEMPTS, CALL_TOKENS, KEY, LONG_TOKENS, MODEL, SHORT_TOKENS, WS_URL, check, run, step


class Talk:
    def __init__(self, session, tools=()):
        self.session, self.tools, self.events = session, list(tools), aiter(session)

    async def settings(self, **settings):
        # This client says all of its tools with every update.
        settings["tools"] = self.tools
        await self.session.model.send_event(RealtimeModelSendSessionUpdate(session_settings=settings))

    async def next(self):
        event = await anext(self.events)
        if event.type == "raw_model_event":
            event = event.data
        # A random model may be done in the moment in which it is interrupted.
        is_late = event.type == "error" and getattr(event.error, "code", None) == "response_cancel_not_active"
        check(is_late or event.type not in ("error", "exception"), event)
        if event.type == "raw_server_event" and event.data["type"] == "response.done":
            check(event.data["response"]["status"] != "failed", event.data)
        return event

    async def until(self, kind):
        while (event := await self.next()).type != kind:
            pass
        return event

    async def server_event(self, kind):
        while (event := await self.until("raw_server_event")).data["type"] != kind:
            pass
        return event.data


def running(tools=(), **query):
    query = "".join(f"&{name}={value}" for name, value in query.items())
    return RealtimeRunner(RealtimeAgent(name="Assistant", instructions="Be short.", tools=list(tools))).run(
        model_config={
            "url": f"{WS_URL}/realtime?model={MODEL}{query}",
            "api_key": KEY,
            "initial_model_settings": {
                "model_name": MODEL, "output_modalities": ["text"], "turn_detection": None, "tool_choice": "none",
                "max_output_tokens": SHORT_TOKENS,
            },
        }
    )


async def everything():
    @function_tool
    async def switch_lamp(on: bool) -> str:
        """Switches the lamp."""
        # Once is enough.
        await talk.settings(tool_choice="none", max_output_tokens=SHORT_TOKENS)
        return "done"

    async with await running([switch_lamp]) as session:
        talk = Talk(session, [switch_lamp])
        session_id = (await talk.server_event("session.created"))["session"]["id"]
        for turn in range(3):
            await session.send_message(f"This is turn {turn}.")
            usage = await talk.until("usage")
            check(usage.usage.input_tokens > 0, usage)
            check(turn == 0 or usage.usage.input_tokens_details.cached_tokens > 0, usage)
            await talk.until("turn_ended")
            step(f"  turn {turn + 1}")
        await talk.settings(tool_choice="required", max_output_tokens=CALL_TOKENS)
        await session.send_message("Switch on the lamp.")
        ended = await talk.until("tool_end")
        check(ended.output == "done", ended)
        step(f"  the lamp was switched: {ended.arguments}")
        await talk.until("turn_ended")
        await an_interruption(talk)
        await talk.settings(tool_choice="none", max_output_tokens=SHORT_TOKENS)
        await session.send_message("Never mind.")
        await talk.until("turn_started")
        await talk.until("turn_ended")
    async with await running(session=session_id) as session:
        talk = Talk(session)
        created = await talk.server_event("session.created")
        check(created["session"]["id"] == session_id, created)
        first = await talk.server_event("conversation.item.added")
        check(first["item"]["content"][0]["text"] == "This is turn 0.", first)
        await session.send_message("Are you still there?")
        await talk.until("turn_ended")
        step("  connected again")


async def an_interruption(talk):
    await talk.settings(tool_choice="none", max_output_tokens=LONG_TOKENS)
    for _ in range(ATTEMPTS):
        await talk.session.send_message("Tell me a long story.")
        heard, is_interrupted = "", False
        while True:
            event = await talk.next()
            if event.type == "output_text_delta":
                heard += event.delta
                if len(heard) > 10 and not is_interrupted:
                    await talk.session.interrupt()
                    is_interrupted = True
            elif event.type == "raw_server_event" and event.data["type"] == "response.done":
                if event.data["response"]["status"] == "cancelled":
                    check(is_interrupted, "nobody asked for that")
                    step("  interrupted")
                    return
                break
    raise AssertionError("the model never has much to say")


run(everything)

"""openai-python: `realtime.connect`."""

import json

from openai import AsyncOpenAI

from common import (ATTEMPTS, CALL_TOKENS, HTTP_URL, KEY, LAMP_REALTIME_TOOL, LONG_TOKENS, MODEL, SHORT_TOKENS, WS_URL,
                    check, run, step)


def connect(**query):
    client = AsyncOpenAI(base_url=HTTP_URL, websocket_base_url=WS_URL, api_key=KEY, max_retries=0)
    return client.realtime.connect(model=MODEL, extra_query=query)


async def until(connection, kind):
    """All events up to the first of this type; an error is none that was asked for."""
    seen = []
    async for event in connection:
        seen.append(event)
        if event.type == kind:
            return seen
        check(event.type != "error", event)
    raise AssertionError(f"the connection ended before {kind}")


def items(events):
    """What was added to the conversation; a call that was cut off is taken back."""
    deleted = {event.item_id for event in events if event.type == "conversation.item.deleted"}
    added = [event.item.id for event in events if event.type == "conversation.item.added"]
    return [item_id for item_id in added if item_id not in deleted]


async def say(connection, text):
    content = [{"type": "input_text", "text": text}]
    await connection.conversation.item.create(item={"type": "message", "role": "user", "content": content})


async def answer(connection, **response):
    await connection.response.create(response=response)
    events = await until(connection, "response.done")
    return events, events[-1].response


async def everything():
    async with connect() as connection:
        created = (await until(connection, "session.created"))[0]
        session = {"type": "realtime", "output_modalities": ["text"], "instructions": "Be short."}
        await connection.session.update(session={**session, "tools": [LAMP_REALTIME_TOOL]})
        updated = (await until(connection, "session.updated"))[-1].session
        check(updated.instructions == "Be short.", updated)
        check(updated.tools[0].name == "switch_lamp", updated)
        said = await three_turns(connection)
        said += await a_tool_call(connection)
        said += await an_interruption(connection)
    await reconnect(created.session.id, said)


async def three_turns(connection):
    said = []
    for turn in range(3):
        await say(connection, f"This is turn {turn}.")
        events, response = await answer(
            connection, max_output_tokens=SHORT_TOKENS, tool_choice="none", metadata={"turn": str(turn)}
        )
        check(response.status in ("completed", "incomplete"), response)
        check(response.metadata == {"turn": str(turn)}, response)
        check(response.usage.input_tokens > 0 and response.usage.output_tokens <= SHORT_TOKENS, response.usage)
        if turn:
            check(response.usage.input_token_details.cached_tokens > 0, "the past was read again")
        said += items(events)
        deltas = "".join(event.delta for event in events if event.type == "response.output_text.delta")
        texts = "".join(part.text for item in response.output for part in item.content)
        check(deltas == texts, (deltas, texts))
        step(f"  turn {turn + 1}: {response.usage.input_tokens} tokens in, {response.usage.output_tokens} out")
    return said


async def a_tool_call(connection):
    await say(connection, "Switch on the lamp.")
    events, response = await answer(connection, max_output_tokens=CALL_TOKENS, tool_choice="required")
    # A random model may go on to call it again, until its tokens are spent.
    check(response.status in ("completed", "incomplete"), response)
    call = response.output[0]
    check(call.type == "function_call" and call.name == "switch_lamp", call)
    check(isinstance(json.loads(call.arguments)["on"], bool), call)
    types = [event.type for event in events]
    done = types.index("response.function_call_arguments.done")
    added = [index for index, event in enumerate(events)
             if event.type == "conversation.item.added" and event.item.type == "function_call"]
    check(added[0] < done, types)
    said = items(events)
    for call in response.output:
        output = {"type": "function_call_output", "call_id": call.call_id, "output": "It is on."}
        await connection.conversation.item.create(item=output)
    events, response = await answer(connection, max_output_tokens=SHORT_TOKENS, tool_choice="none")
    check(response.status in ("completed", "incomplete"), response)
    return said + items(events)


async def an_interruption(connection):
    said = []
    for _ in range(ATTEMPTS):
        await say(connection, "Tell me a long story.")
        await connection.response.create(response={"max_output_tokens": LONG_TOKENS, "tool_choice": "none"})
        heard, is_cancelled = "", False
        async for event in connection:
            if event.type == "conversation.item.added":
                said.append(event.item.id)
            elif event.type == "response.output_text.delta":
                heard += event.delta
                if len(heard) > 10 and not is_cancelled:
                    await connection.response.cancel()
                    is_cancelled = True
            elif event.type == "response.done":
                break
            else:
                check(event.type != "error", event)
        if event.response.status == "cancelled":
            return said
        if is_cancelled:
            # It was done before the cancel arrived.
            async for event in connection:
                if event.type == "error":
                    check(event.error.code == "response_cancel_not_active", event)
                    break
    raise AssertionError("the model never has much to say")


async def reconnect(session_id, said):
    async with connect(session=session_id) as connection:
        created = (await until(connection, "session.created"))[0]
        check(created.session.id == session_id, created)
        known = []
        while known != said:
            known.append((await until(connection, "conversation.item.added"))[-1].item.id)
            check(known == said[: len(known)], (known, said))
        await say(connection, "Are you still there?")
        _, response = await answer(connection, max_output_tokens=SHORT_TOKENS, tool_choice="none")
        check(response.status in ("completed", "incomplete"), response)


run(everything)

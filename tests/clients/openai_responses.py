"""openai-python: responses over HTTP and a websocket. Each event is held against its model, as strict readers do."""

import json

from openai import AsyncOpenAI, BadRequestError, NotFoundError
from openai.types.conversations import Conversation, ConversationItemList
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from common import (ATTEMPTS, CALL_TOKENS, HTTP_URL, KEY, LAMP_PARAMETERS, LAMP_REALTIME_TOOL, LONG_TOKENS, MODEL,
                    SHORT_TOKENS, check, run, step)

EVENT = TypeAdapter(ResponseStreamEvent)
ENDS = ("response.completed", "response.incomplete")


def client():
    return AsyncOpenAI(base_url=HTTP_URL, api_key=KEY, max_retries=0)


def valid(event):
    """The client parses leniently, other clients do not."""
    fields = event if isinstance(event, dict) else event.model_dump(mode="json", exclude_unset=True)
    found = EVENT.validate_python(fields)
    check(found.type == fields["type"], f"{fields['type']} was taken for {found.type}")
    return found


async def all_events(stream):
    events = [valid(event) async for event in stream]
    check([event.sequence_number for event in events] == list(range(len(events))), "the numbers have gaps")
    check(events[0].type == "response.created" and events[-1].type in ENDS, [event.type for event in events])
    done = [event.item for event in events if event.type == "response.output_item.done"]
    check(events[-1].response.output == done, "the output is what was streamed")
    check(events[-1].response.usage.input_tokens_details.cache_write_tokens == 0, events[-1].response.usage)
    return events


async def whole_conversations():
    """As Home Assistant sends them."""
    async with client() as openai:
        log, known = [{"type": "message", "role": "developer", "content": "Be short."}], 0
        for turn in range(3):
            log.append({"type": "message", "role": "user", "content": f"This is turn {turn}."})
            stream = await openai.responses.create(
                model=MODEL, input=log, stream=True, store=False, max_output_tokens=SHORT_TOKENS,
                safety_identifier="a", prompt_cache_key="b", include=[], temperature=0, top_p=1,
            )
            last = (await all_events(stream))[-1].response
            check(last.usage.input_tokens > known and last.usage.output_tokens <= SHORT_TOKENS, last.usage)
            check(turn == 0 or last.usage.input_tokens_details.cached_tokens > 0, "the past was read again")
            known = last.usage.input_tokens
            log += [item.model_dump(exclude_none=True) for item in last.output]
            step(f"  turn {turn + 1}: {last.usage.input_tokens} tokens in, {last.usage.output_tokens} out")


async def a_chain_of_responses():
    async with client() as openai:
        short = dict(model=MODEL, max_output_tokens=SHORT_TOKENS)
        first = await openai.responses.create(input="My cat is Tom.", metadata={"room": "hall"}, **short)
        Response.model_validate(first.model_dump(mode="json"))
        second = await openai.responses.create(input="And a dog.", previous_response_id=first.id, **short)
        check(second.usage.input_tokens > first.usage.input_tokens, "the past is in the prompt")
        branch = await openai.responses.create(input="And a dog.", previous_response_id=first.id, **short)
        check(branch.usage.input_tokens == second.usage.input_tokens, "a branch sees nothing of the other one")
        kept = await openai.responses.retrieve(first.id)
        check(kept.output == first.output and kept.metadata == {"room": "hall"}, kept)
        await openai.responses.cancel(first.id)
        await openai.responses.delete(first.id)
        for call in (openai.responses.retrieve(first.id), openai.responses.cancel("resp_none")):
            try:
                await call
            except NotFoundError as error:
                check(error.code == "response_not_found", error)
            else:
                raise AssertionError("a response that is not there was found")
        try:
            await openai.responses.create(input="Hi.", previous_response_id=first.id, **short)
        except BadRequestError as error:
            check(error.code == "previous_response_not_found" and error.param == "previous_response_id", error)
        else:
            raise AssertionError("a response that is not there was gone on from")


async def conversations():
    async with client() as openai:
        made = await openai.conversations.create(
            items=[{"type": "message", "role": "user", "content": "My cat is Tom."}], metadata={"room": "hall"})
        Conversation.model_validate(made.model_dump(mode="json"))
        reply = await openai.responses.create(model=MODEL, input="Which pets?", conversation=made.id,
                                              max_output_tokens=SHORT_TOKENS)
        check(reply.conversation.id == made.id, reply)
        await openai.conversations.items.create(made.id, items=[{"role": "user", "content": "And a dog."}])
        page = await openai.conversations.items.list(made.id, order="asc", limit=100)
        ConversationItemList.model_validate(page.model_dump(mode="json") | {"object": "list"})
        texts = [item.content[0].text for item in page.data if item.role == "user"]
        check(texts == ["My cat is Tom.", "Which pets?", "And a dog."], page)
        newest = await openai.conversations.items.list(made.id, limit=1)
        check(newest.data[0].content[0].text == "And a dog." and newest.has_more, newest)
        item = await openai.conversations.items.retrieve(newest.data[0].id, conversation_id=made.id)
        check(item.content[0].text == "And a dog.", item)
        await openai.conversations.items.delete(item.id, conversation_id=made.id)
        check((await openai.conversations.update(made.id, metadata={})).metadata == {}, "metadata were not changed")
        check((await openai.conversations.delete(made.id)).deleted, "it is not deleted")
        try:
            await openai.conversations.retrieve(made.id)
        except NotFoundError:
            pass
        else:
            raise AssertionError("a conversation that is deleted was found")


async def a_tool_call():
    async with client() as openai:
        required = dict(model=MODEL, tools=[LAMP_REALTIME_TOOL], parallel_tool_calls=False,
                        max_output_tokens=CALL_TOKENS)
        named = {"type": "function", "name": "switch_lamp"}
        for choice in ("required", named):
            reply = await openai.responses.create(input="Switch on the lamp.", tool_choice=choice, **required)
            (call,) = [item for item in reply.output if item.type == "function_call"]
            check(isinstance(json.loads(call.arguments)["on"], bool), call)
        async with openai.responses.stream(input="Again.", tool_choice="required", **required) as stream:
            events = [event async for event in stream]
            reply = await stream.get_final_response()
        added = [event.item for event in events if event.type == "response.output_item.added"]
        check(added[-1].arguments == "" and added[-1].name == "switch_lamp", added)
        (call,) = [item for item in reply.output if item.type == "function_call"]
        result = {"type": "function_call_output", "call_id": call.call_id, "output": "It is on."}
        reply = await openai.responses.create(
            model=MODEL, input=[result], previous_response_id=reply.id, tools=[LAMP_REALTIME_TOOL], tool_choice="none",
            max_output_tokens=SHORT_TOKENS,
        )
        check(not any(item.type == "function_call" for item in reply.output), reply)


async def json_of_a_schema():
    async with client() as openai:
        form = {"format": {"type": "json_schema", "name": "lamp", "schema": LAMP_PARAMETERS, "strict": True}}
        reply = await openai.responses.create(model=MODEL, input="Is it on?", text=form, store=False,
                                              max_output_tokens=CALL_TOKENS)
        if reply.status == "completed":
            check(isinstance(json.loads(reply.output_text)["on"], bool), reply)


async def refusals():
    async with client() as openai:
        tools = [{"type": "web_search"}]
        for more, param in [({"tools": tools}, "tools[0].type"), ({"background": True}, "background")]:
            try:
                await openai.responses.create(model=MODEL, input="Hi.", **more)
            except BadRequestError as error:
                check(error.param == param and error.code == "unsupported_parameter", error)
            else:
                raise AssertionError(f"{param} was taken")


async def a_helper_that_adds_up():
    async with client() as openai:
        short = dict(model=MODEL, max_output_tokens=SHORT_TOKENS)
        async with openai.responses.stream(input="Say something.", **short) as stream:
            text, kinds = "", set()
            async for event in stream:
                kinds.add(event.type)
                if event.type == "response.output_text.delta":
                    text += event.delta
                    check(event.snapshot == text, event)
        check(kinds & set(ENDS), kinds)


async def an_interruption():
    async with client() as openai:
        for _ in range(ATTEMPTS):
            stream = await openai.responses.create(model=MODEL, input="Tell me a long story.", stream=True,
                                                   max_output_tokens=LONG_TOKENS)
            heard, identity, is_cut = "", None, False
            async for event in stream:
                if event.type == "response.created":
                    identity = event.response.id
                heard += event.delta if event.type == "response.output_text.delta" else ""
                if len(heard) > 10:
                    # The connection is closed in the middle of a reply, as when a person interrupts.
                    await stream.close()
                    is_cut = True
                    break
            if is_cut:
                break
        else:
            raise AssertionError("the model never has much to say")
        kept = await openai.responses.retrieve(identity)
        check(kept.status in ("in_progress", "cancelled", "incomplete", "completed"), kept)


async def a_websocket():
    async with client() as openai:
        async with openai.responses.connect() as connection:
            previous = None
            for turn in range(3):
                frame = {"type": "response.create", "model": MODEL, "input": f"This is turn {turn}.", "store": False,
                         "max_output_tokens": SHORT_TOKENS}
                if previous:
                    frame["previous_response_id"] = previous.id
                await connection.send(frame)
                events = []
                while not events or events[-1].type not in ENDS:
                    events.append(valid(json.loads(await connection.recv_bytes())))
                response = events[-1].response
                check(not previous or response.usage.input_tokens > previous.usage.input_tokens, response)
                previous = response
            await connection.send({"type": "response.create", "model": MODEL, "input": "Hi.", "store": False,
                                   "previous_response_id": "resp_none"})
            error = json.loads(await connection.recv_bytes())
            check(error["type"] == "error" and error["error"]["code"] == "previous_response_not_found", error)


run(whole_conversations, a_chain_of_responses, conversations, a_tool_call, json_of_a_schema, refusals,
    a_helper_that_adds_up, an_interruption, a_websocket)

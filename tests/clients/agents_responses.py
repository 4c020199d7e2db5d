"""OpenAI Agents SDK: its default, responses; over HTTP and over a websocket."""

from agents import (Agent, ModelSettings, OpenAIResponsesModel, Runner, SQLiteSession, function_tool,
                    set_tracing_disabled)
from agents.models.openai_responses import OpenAIResponsesWSModel
from openai import AsyncOpenAI

from common import CALL_TOKENS, HTTP_URL, KEY, STOCK_MODEL, WS_URL, check, run, step

set_tracing_disabled(True)
switched = []


@function_tool
def switch_lamp(on: bool) -> str:
    """Switches the lamp."""
    switched.append(on)
    return "done"


def agent(model, tools=(), **settings):
    return Agent(
        name="Assistant", instructions="Be short.", model=model, tools=list(tools),
        tool_use_behavior="stop_on_first_tool", model_settings=ModelSettings(max_tokens=CALL_TOKENS, **settings),
    )


async def talk(model):
    # The client sends its whole log each time.
    session, known = SQLiteSession("one"), 0
    for question in ("Hello.", "What can you do?", "Thank you."):
        result = Runner.run_streamed(agent(model), question, session=session)
        types = [event.data.type async for event in result.stream_events() if event.type == "raw_response_event"]
        check(types[0] == "response.created" and types[-1] == "response.completed", types)
        usage = result.context_wrapper.usage
        check(usage.input_tokens > known and isinstance(result.final_output, str), result)
        check(known == 0 or usage.input_tokens_details.cached_tokens > 0, usage)
        known = usage.input_tokens
    step(f"  three turns, {known} tokens in")
    # The service keeps the log.
    first = await Runner.run(agent(model), "My cat is Tom.")
    second = await Runner.run(agent(model), "And a dog.", previous_response_id=first.last_response_id)
    usages = [result.context_wrapper.usage.input_tokens for result in (first, second)]
    check(usages[1] > usages[0], usages)
    result = await Runner.run(agent(model), "And a fish.", auto_previous_response_id=True)
    check(result.last_response_id.startswith("resp_"), result)
    switched.clear()
    lamp = agent(model, [switch_lamp], tool_choice="required", parallel_tool_calls=False)
    await Runner.run(lamp, "Switch on the lamp.")
    check(len(switched) == 1 and isinstance(switched[0], bool), switched)
    step(f"  the lamp was switched: {switched}")


async def over_http():
    await talk(OpenAIResponsesModel(STOCK_MODEL, AsyncOpenAI(base_url=HTTP_URL, api_key=KEY, max_retries=0)))


async def over_a_websocket():
    client = AsyncOpenAI(base_url=HTTP_URL, websocket_base_url=WS_URL, api_key=KEY, max_retries=0)
    await talk(OpenAIResponsesWSModel(STOCK_MODEL, client))


run(over_http, over_a_websocket)

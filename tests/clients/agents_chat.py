"""OpenAI Agents SDK: `OpenAIChatCompletionsModel`."""

from agents import (Agent, ModelBehaviorError, ModelSettings, OpenAIChatCompletionsModel, Runner, SQLiteSession,
                    function_tool, set_tracing_disabled)
from openai import AsyncOpenAI

from common import ATTEMPTS, CALL_TOKENS, HTTP_URL, KEY, LONG_TOKENS, MODEL, SHORT_TOKENS, check, run, step

set_tracing_disabled(True)
switched = []


@function_tool
def switch_lamp(on: bool) -> str:
    """Switches the lamp."""
    switched.append(on)
    return "done"


def agent(max_tokens, tools=(), **settings):
    client = AsyncOpenAI(base_url=HTTP_URL, api_key=KEY, max_retries=0)
    return Agent(
        name="Assistant", instructions="Be short.", model=OpenAIChatCompletionsModel(MODEL, client), tools=list(tools),
        # After a tool call the client leaves the choice to the model; that has to end somewhere.
        tool_use_behavior="stop_on_first_tool",
        model_settings=ModelSettings(max_tokens=max_tokens, include_usage=True, **settings),
    )


async def answered(agent, question, session):
    """The client refuses a reply without a word, and a random model may have none to say to a question."""
    for attempt in range(ATTEMPTS):
        result = Runner.run_streamed(agent, question + " Please." * attempt, session=session)
        try:
            types = [event.data.type async for event in result.stream_events() if event.type == "raw_response_event"]
        except ModelBehaviorError as error:
            check("produced no assistant text" in str(error), error)
            continue
        check(types[0] == "response.created" and types[-1] == "response.completed", types)
        return result
    raise AssertionError("the model never says a word")


async def everything():
    session = SQLiteSession("one")
    prompt_tokens = 0
    for turn in range(3):
        result = await answered(agent(SHORT_TOKENS), f"This is turn {turn}.", session)
        usage = result.context_wrapper.usage
        check(usage.input_tokens > prompt_tokens and 0 < usage.output_tokens <= SHORT_TOKENS, usage)
        check(turn == 0 or usage.input_tokens_details.cached_tokens > 0, usage)
        prompt_tokens = usage.input_tokens
        step(f"  turn {turn + 1}: {usage.input_tokens} tokens in, {usage.output_tokens} out")
    required = {"tool_choice": "required", "parallel_tool_calls": False}
    lamp = agent(CALL_TOKENS, [switch_lamp], **required)
    await Runner.run(lamp, "Switch on the lamp.", session=session)
    result = Runner.run_streamed(lamp, "And again.", session=session)
    async for _ in result.stream_events():
        pass
    check(len(switched) == 2 and all(isinstance(on, bool) for on in switched), switched)
    step(f"  the lamp was switched: {switched}")
    # The calls and what became of them are read with the next question.
    await answered(agent(SHORT_TOKENS, [switch_lamp], tool_choice="none"), "Is it on?", session)
    await an_interruption()
    # A new client, with the past that this one kept.
    result = await answered(agent(SHORT_TOKENS), "Are you still there?", session)
    check(result.context_wrapper.usage.input_tokens_details.cached_tokens > 0, result.context_wrapper.usage)


async def an_interruption():
    for _ in range(ATTEMPTS):
        result = Runner.run_streamed(agent(LONG_TOKENS), "Tell me a long story.")
        heard, is_done = "", False
        try:
            async for event in result.stream_events():
                if event.type != "raw_response_event":
                    continue
                is_done = event.data.type == "response.completed"
                if event.data.type == "response.output_text.delta":
                    heard += event.data.delta
                    if len(heard) > 10:
                        result.cancel()
        except ModelBehaviorError as error:
            check("produced no assistant text" in str(error), error)
            continue
        if heard and not is_done:
            step("  interrupted")
            return
    raise AssertionError("the model never has much to say")


run(everything)

"""Pipecat: `OpenAIResponsesLLMService`, over its websocket, and `OpenAIResponsesHttpLLMService`."""

from pipecat.frames.frames import InterruptionFrame, LLMTextFrame
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.services.openai.responses.llm import OpenAIResponsesHttpLLMService, OpenAIResponsesLLMService

from common import CALL_TOKENS, HTTP_URL, KEY, STOCK_MODEL, WS_URL, check, run, step
from pipecat_talk import a_tool_call, pipeline

QUESTIONS = ("Hello.", "What can you do?", "Thank you.")


def settings(kind):
    return kind.Settings(model=STOCK_MODEL, system_instruction="Be short.", max_completion_tokens=CALL_TOKENS)


def over_websocket():
    kind = OpenAIResponsesLLMService
    return kind(api_key=KEY, base_url=HTTP_URL, ws_url=f"{WS_URL}/responses", settings=settings(kind))


def over_http():
    kind = OpenAIResponsesHttpLLMService
    return kind(api_key=KEY, base_url=HTTP_URL, settings=settings(kind))


async def turns(llm, context):
    async with pipeline(llm, context) as talk:
        for question in QUESTIONS:
            await talk.ask(question)
            text = await talk.reply()
            check(text, "the model says nothing")
            step(f"  {text}")


async def websocket():
    context, llm = LLMContext(), over_websocket()
    sent = []
    send = llm._ws_send

    async def watched(frame, *more, **named):
        sent.append(frame)
        return await send(frame, *more, **named)

    llm._ws_send = watched
    await turns(llm, context)
    # From the second on it sends what is new, because what it heard is what the service says that it said.
    check(["previous_response_id" in frame for frame in sent] == [False, True, True], sent)
    async with pipeline(over_websocket(), context) as talk:
        await talk.ask("Tell me a story.")
        frame, _ = await talk.until(LLMTextFrame)
        await talk.worker.queue_frame(InterruptionFrame())
        step(f"  interrupted after {frame.text!r}")
        # What was cancelled has ended, so the connection is as new.
        await talk.ask("Thank you.")
        check(await talk.reply() is not None, "no reply after an interruption")
    await lamp(context, over_websocket())


async def http():
    context = LLMContext()
    await turns(over_http(), context)
    await lamp(context, over_http())


async def lamp(context, llm):
    await a_tool_call(context, llm)
    context.set_tools()
    context.set_tool_choice("none")


run(websocket, http)

"""Pipecat: `OpenAILLMService`, over chat completions."""

from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.services.openai.llm import OpenAILLMService

from common import CALL_TOKENS, HTTP_URL, KEY, LONG_TOKENS, MODEL, SHORT_TOKENS, check, run, step
from pipecat_talk import a_tool_call, pipeline


def service(max_tokens):
    settings = OpenAILLMService.Settings(model=MODEL, system_instruction="Be short.", max_tokens=max_tokens)
    return OpenAILLMService(api_key=KEY, base_url=HTTP_URL, settings=settings)


async def everything():
    context = LLMContext()
    async with pipeline(service(SHORT_TOKENS), context) as talk:
        for turn in range(3):
            await talk.ask(f"This is turn {turn}.")
            await talk.reply()
            step(f"  turn {turn + 1}")
    questions = [message for message in context.get_messages() if message["role"] == "user"]
    check(len(questions) == 3, context.get_messages())
    await lamp(context)
    # A new service each time: what it knows comes from the client.
    async with pipeline(service(LONG_TOKENS), context) as talk:
        await talk.interrupted()
        step("  interrupted")
    async with pipeline(service(SHORT_TOKENS), context) as talk:
        await talk.ask("Are you still there?")
        await talk.reply()


async def lamp(context):
    await a_tool_call(context, service(CALL_TOKENS))
    results = [message for message in context.get_messages() if message["role"] == "tool"]
    check(results and all("true" in result["content"] for result in results), results)


run(everything)

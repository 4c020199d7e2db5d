"""Pipecat: `OpenAILLMService`, over chat completions."""

from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.services.openai.llm import OpenAILLMService

from common import CALL_TOKENS, HTTP_URL, KEY, LONG_TOKENS, MODEL, SHORT_TOKENS, check, run, step
from pipecat_talk import LAMP, pipeline


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
    await a_tool_call(context)
    # A new service each time: what it knows comes from the client.
    async with pipeline(service(LONG_TOKENS), context) as talk:
        await talk.interrupted()
        step("  interrupted")
    async with pipeline(service(SHORT_TOKENS), context) as talk:
        await talk.ask("Are you still there?")
        await talk.reply()


async def a_tool_call(context):
    llm = service(CALL_TOKENS)

    async def switch_lamp(params):
        # Once is enough.
        context.set_tool_choice("none")
        await params.result_callback({"done": True})

    llm.register_function("switch_lamp", switch_lamp)
    context.set_tools(LAMP)
    context.set_tool_choice("required")
    async with pipeline(llm, context) as talk:
        await talk.ask("Switch on the lamp.")
        await talk.tool_result()
        # The reply with the call in it, and the one that says what became of it.
        await talk.reply()
    results = [message for message in context.get_messages() if message["role"] == "tool"]
    check(results and all("true" in result["content"] for result in results), results)


run(everything)

"""Pipecat: `OpenAIRealtimeLLMService`, in text. Any error of the service that it does not know ends it."""

from pipecat.frames.frames import LLMUpdateSettingsFrame
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.services.openai.realtime.events import AudioConfiguration, AudioInput, SessionProperties
from pipecat.services.openai.realtime.llm import OpenAIRealtimeLLMService

from common import CALL_TOKENS, KEY, LONG_TOKENS, MODEL, SHORT_TOKENS, WS_URL, run, step
from pipecat_talk import LAMP, pipeline


def settings(max_tokens, tool_choice="none"):
    # Turns are found by the application, so that it is the one who interrupts.
    audio = AudioConfiguration(input=AudioInput(turn_detection=False))
    properties = SessionProperties(
        output_modalities=["text"], max_output_tokens=max_tokens, audio=audio, tools=LAMP, tool_choice=tool_choice
    )
    return OpenAIRealtimeLLMService.Settings(model=MODEL, system_instruction="Be short.", session_properties=properties)


async def everything():
    llm = OpenAIRealtimeLLMService(api_key=KEY, base_url=f"{WS_URL}/realtime", settings=settings(SHORT_TOKENS))

    async def switch_lamp(params):
        # Once is enough.
        await llm.queue_frame(LLMUpdateSettingsFrame(delta=settings(SHORT_TOKENS)))
        await params.result_callback({"done": True})

    llm.register_function("switch_lamp", switch_lamp)
    context = LLMContext()
    async with pipeline(llm, context, asks_the_model=True) as talk:
        for turn in range(3):
            await talk.ask(f"This is turn {turn}.")
            await talk.reply()
            step(f"  turn {turn + 1}")
        await llm.queue_frame(LLMUpdateSettingsFrame(delta=settings(CALL_TOKENS, "required")))
        await talk.ask("Switch on the lamp.")
        await talk.tool_result()
        await talk.reply()
        await llm.queue_frame(LLMUpdateSettingsFrame(delta=settings(LONG_TOKENS)))
        await talk.interrupted()
        step("  interrupted")
        await llm.queue_frame(LLMUpdateSettingsFrame(delta=settings(SHORT_TOKENS)))
        await talk.ask("Never mind.")
        await talk.reply()
    # A new connection gets what was said from the client.
    llm = OpenAIRealtimeLLMService(api_key=KEY, base_url=f"{WS_URL}/realtime", settings=settings(SHORT_TOKENS))
    async with pipeline(llm, context, asks_the_model=True) as talk:
        await talk.ask("Are you still there?")
        await talk.reply()
        step("  connected again")


run(everything)

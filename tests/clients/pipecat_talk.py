"""What both Pipecat scripts do: a pipeline as applications build it, and the frames that come out of the model."""

import asyncio
import sys
from contextlib import asynccontextmanager

from loguru import logger
from pipecat.adapters.llm.schemas.function_schema import FunctionSchema
from pipecat.adapters.llm.schemas.tools_schema import ToolsSchema
from pipecat.frames.frames import (EndFrame, ErrorFrame, FunctionCallResultFrame, InterruptionFrame,
                                   LLMFullResponseEndFrame, LLMFullResponseStartFrame, LLMMessagesAppendFrame, LLMTextFrame)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.workers.runner import WorkerRunner

from common import ATTEMPTS, LAMP_PARAMETERS, check, step

# A client that stops reading says so in its log alone.
logger.remove()
logger.add(sys.stderr, level="ERROR")

LAMP = ToolsSchema(standard_tools=[
    FunctionSchema("switch_lamp", "Switches the lamp.", LAMP_PARAMETERS["properties"], LAMP_PARAMETERS["required"])
])


KEPT = (ErrorFrame, FunctionCallResultFrame, LLMFullResponseEndFrame, LLMFullResponseStartFrame, LLMTextFrame)


class Tap(FrameProcessor):
    """Lets everything pass, and keeps it for who waits for it."""

    def __init__(self, frames):
        super().__init__()
        self.frames = frames

    async def process_frame(self, frame, direction):
        await super().process_frame(frame, direction)
        if isinstance(frame, KEPT):
            self.frames.put_nowait(frame)
        await self.push_frame(frame, direction)


class Talk:
    def __init__(self, worker, entry, frames):
        self.worker, self.entry, self.frames = worker, entry, frames

    async def ask(self, text):
        messages = [{"role": "user", "content": text}]
        await self.entry.queue_frame(LLMMessagesAppendFrame(messages=messages, run_llm=True))

    async def next(self):
        frame = await self.frames.get()
        check(not isinstance(frame, ErrorFrame), frame)
        return frame

    async def until(self, kind):
        """The first frame of this kind, and the text before it."""
        text = ""
        while not isinstance(frame := await self.next(), kind):
            text += frame.text if isinstance(frame, LLMTextFrame) else ""
        return frame, text

    async def reply(self):
        # An interruption may have ended the one before twice.
        await self.until(LLMFullResponseStartFrame)
        return (await self.until(LLMFullResponseEndFrame))[1]

    async def tool_result(self):
        frame, _ = await self.until(FunctionCallResultFrame)
        check(frame.function_name == "switch_lamp" and isinstance(frame.arguments["on"], bool), frame)
        step(f"  the lamp was switched: {frame.arguments}")

    async def interrupted(self):
        """Asks for a long reply and talks into it. A random model may be done before that."""
        for _ in range(ATTEMPTS):
            await self.ask("Tell me a long story.")
            await self.until(LLMFullResponseStartFrame)
            heard = ""
            while not isinstance(frame := await self.next(), LLMFullResponseEndFrame):
                heard += frame.text if isinstance(frame, LLMTextFrame) else ""
                if len(heard) > 10:
                    await self.worker.queue_frame(InterruptionFrame())
                    return heard
        raise AssertionError("the model never has much to say")


@asynccontextmanager
async def pipeline(llm, context, asks_the_model=False):
    frames = asyncio.Queue()
    aggregators = LLMContextAggregatorPair(context)
    stages = [aggregators.user(), llm, Tap(frames), aggregators.assistant()]
    worker = PipelineWorker(
        Pipeline(stages), params=PipelineParams(enable_metrics=True, enable_usage_metrics=True), enable_rtvi=False,
        cancel_on_idle_timeout=False,
    )
    started = asyncio.Event()

    @worker.event_handler("on_pipeline_started")
    async def on_pipeline_started(worker, frame):
        started.set()

    @worker.event_handler("on_pipeline_error")
    async def on_pipeline_error(worker, frame):
        frames.put_nowait(frame)

    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    running = asyncio.create_task(runner.run())
    await started.wait()
    # The aggregator of the user keeps written questions from a realtime model: those are put behind it.
    yield Talk(worker, llm if asks_the_model else worker, frames)
    await worker.queue_frame(EndFrame())
    await running


async def a_tool_call(context, llm):
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

"""The tool of both LiveKit scripts."""

from livekit.agents import llm


@llm.function_tool
async def switch_lamp(on: bool) -> str:
    """Switches the lamp.

    Args:
        on: Whether it shall shine.
    """
    return "done"

"""A talk in a terminal with the package `openai`: `python3 terminal.py http://127.0.0.1:8080 [KEY]`. An empty line interrupts."""
import asyncio
import sys

from openai import AsyncOpenAI
from websockets.exceptions import WebSocketException


async def show(connection):
    async for event in connection:
        if event.type == "response.output_text.delta":
            print(event.delta, end="", flush=True)
        elif event.type == "response.done":
            print(flush=True)
        elif event.type == "error":
            print(event.error.message, file=sys.stderr)


async def ask(connection, lines):
    while line := await lines.get():
        if line.strip():
            content = [{"type": "input_text", "text": line.strip()}]
            await connection.conversation.item.create(item={"type": "message", "role": "user", "content": content})
            await connection.response.create()
        else:
            await connection.response.cancel()


async def talk(url="http://127.0.0.1:8080", key="not-needed"):
    client = AsyncOpenAI(base_url=f"{url}/v1", websocket_base_url=f"ws{url.removeprefix('http')}/v1", api_key=key)
    lines, query = asyncio.Queue(), {}
    asyncio.get_running_loop().add_reader(sys.stdin, lambda: lines.put_nowait(sys.stdin.readline()))
    is_over = False
    while not is_over:  # A lost connection is opened again, with the same session.
        try:
            async with client.realtime.connect(model="gpt-realtime", extra_query=query) as connection:
                query = {"session": (await connection.recv()).session.id}
                tasks = [asyncio.create_task(work) for work in (ask(connection, lines), show(connection))]
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                is_over = tasks[0].done() and not tasks[0].exception()
                for task in tasks:
                    task.cancel()
        except (OSError, WebSocketException):  # A server that goes may take a connection and say nothing.
            await asyncio.sleep(1)


asyncio.run(talk(*sys.argv[1:]))

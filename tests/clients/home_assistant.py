"""What Home Assistant's integrations send (tests/data/home), through the libraries that they use, read as they read it.

A tiny model's window is smaller than a home. What does not fit is refused in words that the user can be told.
"""

import json
import os
from pathlib import Path

from ollama import AsyncClient, ResponseError
from openai import AsyncOpenAI, BadRequestError, __version__

from common import ADDRESS, HTTP_URL, KEY, MODEL, SHORT_TOKENS, check, run, step

FILE = Path(__file__).parent.parent / "data" / "home" / "requests.jsonl"
RECORDS = [json.loads(line) for line in FILE.read_text().splitlines()]
# Of the body, what the library knows by name. The rest is what integrations add to it.
KNOWN = {"messages", "model", "tools", "tool_choice", "max_tokens", "max_completion_tokens", "top_p", "temperature", "user",
         "stream", "stream_options", "parallel_tool_calls"}


def records(word):
    found = [record for record in RECORDS if word in record["client"]]
    check(found, f"no requests of {word}")
    return found


def named(record):
    return f"  {record['client']}: {record.get('what')} ({record.get('entities', 0)} entities)"


def is_told(message, record):
    check(record.get("entities"), f"only a home is too large: {message}")
    check("maximum context length is" in message and len(message) < 300, message)


async def pins():
    wanted = os.environ.get("OPENAI_PIN")
    check(wanted in (None, __version__), f"openai {__version__} is not {wanted}")
    step(f"  openai {__version__}")


async def ollama_turns():
    """Home Assistant reads message.content, message.thinking and message.tool_calls of each line."""
    client = AsyncClient(host=f"http://{ADDRESS}")
    for record in records("ollama"):
        body = {**record["body"], "model": MODEL}
        body["options"] = {**body.get("options", {}), "num_predict": SHORT_TOKENS}
        lines = 0
        try:
            answer = await client.chat(**body)
            if body["stream"]:
                async for line in answer:
                    check(line.message.role == "assistant", line)
                    lines += 1
            else:
                check(answer.done and answer.message.content is not None, answer)
                lines = 1
        except ResponseError as error:
            is_told(error.error, record)
        step(f"{named(record)}: {lines} lines")


async def llama_cpp_stops_at_the_finish_reason(openai, body, more):
    """As the integration reads: one call of a chunk, and nothing behind the finish reason."""
    stream = await openai.chat.completions.create(**body, extra_body=more)
    text, calls, reason = "", [], None
    async for chunk in stream:
        if not chunk.choices:
            continue
        choice = chunk.choices[0]
        if choice.delta.tool_calls:
            call = choice.delta.tool_calls[0]
            if call.id:
                calls.append([call.function.name, ""])
            calls[-1][1] += call.function.arguments or ""
        elif choice.delta.content and not calls:
            text += choice.delta.content
        if choice.finish_reason:
            reason = choice.finish_reason
            break
    await stream.close()
    check(reason in ("stop", "length", "tool_calls"), reason)
    for name, arguments in calls:
        check(name and isinstance(json.loads(arguments), dict), calls)
    return reason


async def openai_turns():
    async with AsyncOpenAI(base_url=HTTP_URL, api_key=KEY) as openai:
        for word in ("llama_cpp", "litellm", "local openai", "extended openai", "home-llm generic", "open-webui openai"):
            for record in records(word):
                given = {**record["body"], "model": MODEL}
                given["max_tokens"] = min(given.pop("max_completion_tokens", given.get("max_tokens", 3000)), SHORT_TOKENS)
                body = {name: value for name, value in given.items() if name in KNOWN}
                more = {name: value for name, value in given.items() if name not in KNOWN}
                try:
                    if body.get("stream"):
                        reason = await llama_cpp_stops_at_the_finish_reason(openai, body, more)
                    else:
                        reply = await openai.chat.completions.create(**body, extra_body=more)
                        reason = reply.choices[0].finish_reason
                        check(reply.usage.total_tokens > 0 and reason, reply)
                except BadRequestError as error:
                    check(error.code == "context_length_exceeded", error)
                    is_told(error.message, record)
                    reason = "too large"
                step(f"{named(record)}: {reason}")


async def a_turn_that_was_sent_again():
    """The library sends a request again whose answer broke off. A session keeps it once."""
    async with AsyncOpenAI(base_url=HTTP_URL, api_key=KEY) as openai:
        messages = [{"role": "user", "content": "Good morning."}]
        body = dict(model=MODEL, messages=messages, max_tokens=SHORT_TOKENS)
        first = await openai.chat.completions.create(**body, metadata={"session_id": "new"})
        again = await openai.chat.completions.create(
            **body, metadata={"session_id": "new"}, extra_headers={"x-stainless-retry-count": "1"}
        )
        check(first.choices[0].message.content == again.choices[0].message.content, (first, again))
        check(first.reprise["session_id"] == again.reprise["session_id"], (first, again))


run(pins, ollama_turns, openai_turns, a_turn_that_was_sent_again)

"""The recipe of requests.jsonl: what the frontends of a home send, one request a line.

    python3 make_requests.py > requests.jsonl

The shapes are those of the clients' releases of November 2026: which fields, in which order of messages, with what in them.
The words are ours. `reads` says by which rules the client reads the answer.
"""

import json

ROOMS = ["kitchen", "living room", "bedroom", "bathroom", "hall", "office", "garage", "garden"]
THINGS = [("ceiling light", "light"), ("lamp", "light"), ("blind", "cover"), ("socket", "switch"), ("heating", "climate"),
          ("thermometer", "sensor"), ("window contact", "binary_sensor"), ("speaker", "media_player")]
ULID = "01KB2M5Q8V4T9W3X7Y1Z6A0C2E"

INSTRUCTIONS = ("You are a voice assistant for a smart home.\nAnswer questions about the world truthfully.\n"
                "Answer in plain text. Keep it simple and to the point.")
RULES = " ".join([
    "When controlling the home always call the tools.",
    "Use HassTurnOn to lock and HassTurnOff to unlock a lock.",
    "When a user names a device, pass its name and domain; when a user names an area, pass the area and the domain.",
    "Pass only what the user has said or what the list below says of a device, and never a word of your own for one.",
    "When the user asks for the state of something that is listed below, such as whether a door is locked or how warm it is, "
    "first ask the tool for the live state, because the list has no states, and answer with what it tells and nothing else.",
    "When the user asks what devices there are, answer with the list, and do not call a tool for that.",
    "When a tool answers with an error, tell the user in one short sentence what could not be done, and do not call it again "
    "with the same arguments, because it will answer the same; when it answers that nothing matched, ask which is meant.",
    "A general question that is not about the home is answered from what you know.",
])
AREA = ("When a user asks to turn on all devices of a kind, ask for the area unless there is only one of that kind.\n"
        "You are in area Kitchen (floor Ground) and all generic commands like 'turn on the lights' should target this area.\n"
        "This device is not able to start timers.")


def entities(count):
    made = []
    for at in range(count):
        room, (thing, domain) = ROOMS[at % len(ROOMS)], THINGS[at // len(ROOMS) % len(THINGS)]
        number = at // (len(ROOMS) * len(THINGS)) + 1
        made.append((f"{room} {thing} {number}", domain, room))
    return "".join(f"- names: {name}\n  domain: {domain}\n  areas: {area}\n" for name, domain, area in sorted(made))


def system(count):
    home = f"{RULES}\nStatic Context: An overview of the areas and the devices in this smart home:\n{entities(count)}"
    return f"{INSTRUCTIONS}\n{home}{AREA}"


TEXT = {"type": "string"}
SLOTS = {"name": TEXT, "area": TEXT, "floor": TEXT, "domain": {"type": "array", "items": TEXT}}
NAMED = ["intent__HassTurnOn", "intent__HassTurnOff", "light__HassLightSet", "homeassistant__GetLiveContext",
         "llm__GetDateTime", "todo__HassListAddItem", "intent__HassCancelAllTimers"]


def tools(count):
    names = NAMED[:count] + [f"script__routine_{at}" for at in range(count - len(NAMED))]
    def parameters(name):
        if name.endswith(("GetLiveContext", "GetDateTime")):
            return {"type": "object", "properties": {}}
        more = {"brightness": {"type": "integer", "minimum": 0, "maximum": 100}, "color": TEXT}
        return {"type": "object", "properties": {**SLOTS, **(more if name.endswith("LightSet") else {})}, "required": []}
    return [{"type": "function", "function": {"name": name, "description": f"Does what {name.split('__')[1]} says.",
                                              "parameters": parameters(name)}} for name in names]


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


RESULT = json.dumps({"data": {"success": True}, "error": False})
STATE = json.dumps({"data": "kitchen lamp 1: on", "error": False})
WANTED = [("light__HassLightSet", {"name": "kitchen lamp 1", "brightness": 40}), ("homeassistant__GetLiveContext", {})]


def round_of_ollama():
    """Arguments are an object, and neither calls nor results have a name or an id."""
    calls = [{"function": {"name": name, "arguments": arguments}} for name, arguments in WANTED]
    return [user("Dim the lamp in the kitchen. Is it on?"), {"role": "assistant", "tool_calls": calls},
            {"role": "tool", "content": RESULT}, {"role": "tool", "content": STATE},
            assistant("It is on, and dimmed.")]


def round_of_openai():
    calls = [{"id": f"call_{at}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
             for at, (name, arguments) in enumerate(WANTED)]
    results = [{"role": "tool", "tool_call_id": f"call_{at}", "content": said} for at, said in enumerate([RESULT, STATE])]
    return [user("Dim the lamp in the kitchen. Is it on?"), {"role": "assistant", "content": None, "tool_calls": calls},
            *results, assistant("It is on, and dimmed.")]


# What Home Assistant's log holds that no server said.
FOREIGN = [user("Turn off the radio."), assistant("Turned off the radio."), user("What time is it?"),
           assistant("Error: CancelledError"), user("Hello?"), assistant("(no response)")]
NOW = user("Is a window open?")


def record(client, path, reads, body, headers=None, **about):
    print(json.dumps({"client": client, **about, "path": path, "headers": headers or {}, "reads": reads, "body": body}))


def ollama():
    for entity_count, tool_count in [(60, 7), (200, 40)]:
        def turn(what, messages):
            body = {"model": "test-model:latest", "stream": True, "options": {"num_ctx": 8192}, "keep_alive": -1.0,
                    "messages": messages, "tools": tools(tool_count)}
            record("home-assistant ollama", "/api/chat", "ndjson", body, what=what, entities=entity_count,
                   tools=tool_count)
        head = {"role": "system", "content": system(entity_count)}
        turn("first turn", [head, NOW])
        if entity_count == 200:
            continue
        turn("after a round of tools", [head, *round_of_ollama(), *FOREIGN, NOW])
        # After twenty rounds the log is cut at its front: here through a round of tools.
        turn("cut in a round of tools", [head, *round_of_ollama()[2:], *FOREIGN, NOW])
    schema = {"type": "object", "properties": {"title": TEXT}, "required": ["title"]}
    record("home-assistant ollama", "/api/chat", "ndjson",
           {"model": "test-model", "stream": True, "options": {"num_ctx": 8192}, "keep_alive": "300s", "think": False,
            "format": schema, "messages": [user("A title for my list.")], "tools": []}, what="task with a structure")
    options = {"num_ctx": 8192, "top_p": 0.95, "top_k": 40, "typical_p": 1.0, "temperature": 0.6, "num_predict": 100,
               "min_p": 0.0}
    record("home-llm ollama", "/api/chat", "ndjson",
           {"model": "test-model", "stream": True, "options": options, "keep_alive": "30m", "tools": tools(7),
            "messages": [{"role": "system", "content": system(60)}, NOW]}, what="first turn", entities=60, tools=7)


def openai():
    path = "/v1/chat/completions"
    probe = {"messages": [{"role": "system", "content": "You are a helpful assistant."},
                          user("What is the capital of France?")],
             "model": "test-model", "max_tokens": 3,
             "tools": [{"type": "function", "function": {"name": "test_function", "description": "A test function.",
                                                         "parameters": {"type": "object", "properties": {}}}}]}
    record("home-assistant llama_cpp", path, "json", {**probe, "stream": False}, what="first probe")
    record("home-assistant llama_cpp", path, "sse", {**probe, "stream": True}, what="second probe")
    for entity_count, tool_count in [(60, 7), (200, 40)]:
        about = {"entities": entity_count, "tools": tool_count}
        head = {"role": "system", "content": system(entity_count)}
        later = [("after a round of tools", [*round_of_openai(), *FOREIGN])] if entity_count == 60 else []
        for what, rounds in [("first turn", []), *later]:
            messages = [head, *rounds, NOW]
            record("home-assistant llama_cpp", path, "sse",
                   {"messages": messages, "model": "test-model", "tools": tools(tool_count), "max_tokens": 3000,
                    "top_p": 1.0, "temperature": 0.7, "user": ULID, "stream": True}, what=what, **about)
            record("home-assistant litellm", path, "json",
                   {"model": "test-model", "user": ULID, "tools": tools(tool_count), "messages": messages}, what=what,
                   **about)
            record("local openai", path, "sse",
                   {"model": "test-model", "messages": messages, "tools": tools(tool_count), "temperature": 0.6,
                    "parallel_tool_calls": True, "chat_template_kwargs": {"enable_thinking": False}, "id_slot": 0,
                    "stream": True, "stream_options": {"include_usage": True}}, what=what, **about)
        named = {**NOW, "name": "0123456789abcdef0123456789abcdef"}
        record("extended openai", path, "json",
               {"model": "test-model", "messages": [head, named], "max_tokens": 150, "top_p": 1, "temperature": 0.5,
                "user": ULID, "tools": tools(tool_count), "tool_choice": "auto"}, what="first turn", **about)
        parts = {"role": "user", "content": [{"type": "text", "text": NOW["content"]}]}
        record("home-llm generic", path, "lines",
               {"model": "test-model", "stream": True, "max_tokens": 512, "temperature": 0.6, "top_p": 0.95,
                "messages": [head, parts], "tools": tools(tool_count)}, what="first turn", **about)


def open_webui():
    title = user("### Task:\nGenerate a concise title with 3 to 5 words for the chat.\n### Chat History:\n<chat_history>\n"
                 "USER: Hi\n</chat_history>")
    tags = user("### Task:\nGenerate 1 to 3 broad tags for the chat.\n### Chat History:\n<chat_history>\nUSER: Hi\n"
                "</chat_history>")
    for what, message in [("title", title), ("tags", tags)]:
        record("open-webui openai", "/v1/chat/completions", "task",
               {"model": "test-model", "messages": [message], "stream": False, "max_completion_tokens": 1000}, what=what)
        record("open-webui ollama", "/api/chat", "task",
               {"model": "test-model:latest", "messages": [message], "stream": False, "options": {"num_predict": 1000}},
               what=what)
    record("open-webui ollama", "/api/chat", "ndjson",
           {"model": "test-model:latest", "messages": [user("Hi")], "stream": True, "options": {"temperature": 0.7},
            "think": False, "keep_alive": "5m"}, what="first turn")


if __name__ == "__main__":
    ollama()
    openai()
    open_webui()

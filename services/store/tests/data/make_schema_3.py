"""Makes schema-3.sqlite3, a store as a service of schema step 3 leaves it, and what that service tells of it. README.md
has the command.
"""

import base64
import json
import os
import pathlib
import shutil
import socket
import sqlite3
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request

CONFIG = """
[server]
port = 0
[auth]
required = "always"
[store]
path = "store.sqlite3"
[model]
preset = "builtin-1k"
[experiment]
name = "windows"
arms = { "builtin-1k" = 1, "builtin-2k" = 1 }
overrides = { ann = "builtin-1k", ben = "builtin-2k" }
"""

# The built-in model keeps these; together they fill a window of 1,000 tokens.
FACTS = [
    "My dog is called Rex.", "I live in London.", "My sister is called Lena.", "My birthday is on the third of May.",
    "My favourite colour is green.", "My favourite food is soup.", "My doctor is called Weber.", "I work in a bakery.",
    "My brother is called Tom.", "My car is red.", "My favourite drink is tea.", "My neighbour is called Olga.",
    "My cat is called Mimi.", "I was born in Oslo.", "My favourite animal is the owl.", "My boss is called Ines.",
    "My shoe size is 42.", "My favourite song is Yesterday.", "My teacher is called Paul.", "My bus is number 12.",
]
TOOLS = [{
    "type": "function", "name": "set_light", "description": "Switches a light on or off.",
    "parameters": {"type": "object", "properties": {"room": {"type": "string"}, "state": {"type": "string"}},
                   "required": ["room", "state"]},
}]


class Service:
    def __init__(self, binary, folder):
        self.process = subprocess.Popen([binary, "serve"], cwd=folder, stdout=subprocess.PIPE, text=True)
        for line in self.process.stdout:
            if "address   http://" in line:
                self.address = line.split("http://")[1].strip()
            if "reprise chat" in line:
                break

    def http(self, key, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
        request = urllib.request.Request(f"http://{self.address}{path}", data, headers, method=method)
        with urllib.request.urlopen(request) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def stop(self):
        self.process.terminate()
        assert self.process.wait() == 0

    def kill(self):
        self.process.kill()
        self.process.wait()


class Socket:
    """As little of a websocket client as the recipe needs."""

    def __init__(self, service, key):
        host, port = service.address.rsplit(":", 1)
        self.stream = socket.create_connection((host, int(port)))
        nonce = base64.b64encode(os.urandom(16)).decode()
        self.stream.sendall(
            f"GET /v1/realtime?extensions=reprise HTTP/1.1\r\nhost: {service.address}\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
            f"sec-websocket-key: {nonce}\r\nsec-websocket-version: 13\r\nauthorization: Bearer {key}\r\n\r\n".encode())
        self.input = self.stream.makefile("rb")
        assert b"101" in self.input.readline()
        while self.input.readline().strip():
            pass
        self.session = self.until("session.created")["session"]["id"]

    def say(self, event):
        text = json.dumps(event).encode()
        assert len(text) < 65536
        length = bytes([0x80 | len(text)]) if len(text) < 126 else b"\xfe" + struct.pack(">H", len(text))
        self.stream.sendall(b"\x81" + length + bytes(4) + text)

    def event(self):
        while True:
            first, length = self.input.read(2)
            if length == 126:
                length, = struct.unpack(">H", self.input.read(2))
            elif length == 127:
                length, = struct.unpack(">Q", self.input.read(8))
            payload = self.input.read(length)
            if first & 15 == 1:
                return json.loads(payload)

    def until(self, kind):
        while True:
            event = self.event()
            assert event["type"] != "error", event
            if event["type"] == kind:
                return event

    def put(self, item, **more):
        self.say({"type": "conversation.item.create", "item": item, **more})
        return self.until("conversation.item.done")["item"]

    def user(self, text, item_id=None, **more):
        item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
        return self.put(item | ({"id": item_id} if item_id else {}), **more)

    def answer(self, **response):
        self.say({"type": "response.create", "response": response})
        return self.until("response.done")["response"]


def conversation(service, key):
    """Ann's: a full window, a summary, pins, an edit, a deletion, a truncation, a tool, a response beside it."""
    talk = Socket(service, key)
    talk.say({"type": "session.update", "session": {
        "type": "realtime", "instructions": "You are the kitchen's assistant.", "tools": TOOLS, "tool_choice": "auto",
        "max_output_tokens": 200}})
    talk.until("session.updated")
    note = {"type": "message", "role": "system", "content": [{"type": "input_text", "text": "Ann is in the kitchen."}]}
    talk.put(note | {"id": "note"}, previous_item_id="root")
    talk.user("Turn on the light in the kitchen.", "light")
    call = talk.answer()["output"][0]
    assert call["type"] == "function_call", call
    talk.put({"type": "function_call_output", "call_id": call["call_id"], "output": "ok", "id": "light-result"})
    talk.answer()
    talk.user("Remember that my dog eats at seven.", "wish")
    talk.answer()
    talk.user("I never said this.", "mistake")
    talk.say({"type": "conversation.item.delete", "item_id": "mistake"})
    talk.until("conversation.item.deleted")
    talk.user("今天我去東京。", "tokyo")
    talk.user("What is my dog called?", "unknown")
    reply = talk.answer(metadata={"topic": "dog"})
    talk.say({"type": "conversation.item.truncate", "item_id": reply["output"][0]["id"], "content_index": 0, "text_end": 9})
    talk.until("conversation.item.truncated")
    beside = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Good morning."}]}]
    talk.answer(conversation="none", input=beside)
    for fact in FACTS:
        talk.user(fact)
        reply = talk.answer()
        summaries = service.http(key, "GET", f"/v1/sessions/{talk.session}/summaries")["data"]
        if summaries:
            break
    while not any(summary["kind"] == "summary" and summary["applied_at_ms"] for summary in summaries):
        time.sleep(0.1)
        summaries = service.http(key, "GET", f"/v1/sessions/{talk.session}/summaries")["data"]
    service.http(key, "POST", "/v1/feedback", {"response_id": reply["id"], "value": 1, "session_id": talk.session})
    talk.user("Where do I live?")
    talk.answer()
    service.http(key, "POST", f"/v1/sessions/{talk.session}/summaries", {"text": "- Ann lives in London."})
    service.http(key, "POST", f"/v1/sessions/{talk.session}/summaries/undo", {})
    service.http(key, "POST", f"/v1/sessions/{talk.session}/pins", {"text": "Speak slowly."})
    unwanted = service.http(key, "POST", f"/v1/sessions/{talk.session}/pins", {"text": "Speak loudly."})
    service.http(key, "DELETE", f"/v1/sessions/{talk.session}/pins/{unwanted['id']}")
    # So much at once finds no room in the window: its response fails.
    talk.user(" ".join(FACTS * 3))
    talk.answer()
    return talk.session


def chat_completions(service, key):
    """Ben's: chat completions, in the other arm."""
    body = {"messages": [{"role": "user", "content": "My dog is called Bo."}], "metadata": {"session_id": "new"}}
    session = service.http(key, "POST", "/v1/chat/completions", body)["reprise"]["session_id"]
    body = {"messages": [{"role": "user", "content": "What is my dog called?"}], "metadata": {"session_id": session}}
    service.http(key, "POST", "/v1/chat/completions", body)
    return session


def killed_in_the_middle(service, key, store):
    """The service dies while a reply is being sent, of which the store has a piece."""
    talk = Socket(service, key)
    for fact in FACTS[:3]:
        talk.user(fact)
        talk.answer()
    while True:
        talk.user("What do you know about me?")
        talk.say({"type": "response.create"})
        patience = time.monotonic() + 2
        while time.monotonic() < patience:
            if store.execute("SELECT * FROM reply_pieces WHERE text <> ''").fetchone():
                service.kill()
                return talk.session
        talk.until("response.done")


def main():
    binary, out = os.path.abspath(sys.argv[1]), pathlib.Path(__file__).parent
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "reprise.toml").write_text(CONFIG)

        def reprise(*arguments):
            return subprocess.run([binary, *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout

        def key(user, *more):
            return json.loads(reprise("keys", "create", "--user", user, "--json", *more))

        ann, ben, lost = key("ann", "--name", "kitchen"), key("ben"), key("ben", "--name", "lost")
        key("root", "--scope", "admin")
        reprise("keys", "revoke", lost["id"])
        service = Service(binary, folder)
        store = sqlite3.connect(pathlib.Path(folder, "store.sqlite3"), isolation_level=None)
        kitchen = conversation(service, ann["key"])
        chat = chat_completions(service, ben["key"])
        secret = service.http(ben["key"], "POST", "/v1/realtime/client_secrets", {"session": {"type": "realtime"}})
        hall = killed_in_the_middle(service, ann["key"], store)
        # The next start closes that reply; what follows leaves one open.
        service = Service(binary, folder)
        sessions = [kitchen, hall, chat]
        (out / "schema-3.jsonl").write_text("".join(reprise("sessions", "export", session) for session in sessions))
        cellar = killed_in_the_middle(service, ann["key"], store)
        told = {
            "kitchen": kitchen, "hall": hall, "chat": chat, "cellar": cellar, "key": ann["key"], "revoked": lost["key"],
            "client_secret": secret["value"], "made_at_ms": int(time.time() * 1000),
        }
        (out / "schema-3.json").write_text(json.dumps(told, indent=2) + "\n")
        # What is in the write-ahead log goes into the file; nothing else changes.
        store.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        store.close()
        shutil.copy(pathlib.Path(folder, "store.sqlite3"), out / "schema-3.sqlite3")


main()

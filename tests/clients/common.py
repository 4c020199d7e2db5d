"""What the scripts share: where the service is, a deadline, and a fence around the machine."""

import asyncio
import os
import sys
import traceback

# Scripts take seconds; this is for a machine that is busy with something else.
DEADLINE_S = 60
# A random model ends when it likes: a reply that has to be long is asked for again.
ATTEMPTS = 20
LONG_TOKENS = 300
SHORT_TOKENS = 12
# A call of the lamp takes about fifty tokens, and sometimes twice as many.
CALL_TOKENS = 400

ADDRESS = os.environ["REPRISE_ADDRESS"]
HTTP_URL = f"http://{ADDRESS}/v1"
WS_URL = f"ws://{ADDRESS}/v1"
MODEL = "default"
# What clients ask for that were told no name: whatever model runs.
STOCK_MODEL = "gpt-4.1"
# The service has no keys on this machine, but the clients insist on one.
KEY = "not-needed"

LAMP_PARAMETERS = {
    "type": "object",
    "properties": {"on": {"type": "boolean"}},
    "required": ["on"],
    "additionalProperties": False,
}
LAMP_CHAT_TOOL = {
    "type": "function",
    "function": {"name": "switch_lamp", "description": "Switches the lamp.", "parameters": LAMP_PARAMETERS},
}
LAMP_REALTIME_TOOL = {"type": "function", **LAMP_CHAT_TOOL["function"]}


def only_loopback(event, args):
    """Telemetry, downloads and a base URL that was not taken over all end here."""
    if event == "socket.connect":
        address = args[1]
        host = address[0] if isinstance(address, tuple) else "localhost"
    elif event == "socket.getaddrinfo":
        host = args[0]
    else:
        return
    host = host.decode() if isinstance(host, bytes) else host
    is_here = host is None or host.startswith("127.") or host in ("::1", "localhost")
    if not is_here:
        print(f"a connection to {host} was tried", file=sys.stderr, flush=True)
        # An exception might be swallowed by who tried.
        os._exit(3)


def check(is_right, what):
    if not is_right:
        raise AssertionError(what)


def step(what):
    print(what, flush=True)


def run(*scripts):
    """Each to its end, in this order and one deadline; what broke is told with the step it broke in."""
    sys.addaudithook(only_loopback)

    async def all_of_them():
        try:
            async with asyncio.timeout(DEADLINE_S):
                for script in scripts:
                    step(f"- {script.__name__}")
                    await script()
        except BaseException:  # CancelledError too: nothing may look like success.
            traceback.print_exc()
            sys.stderr.flush()
            sys.stdout.flush()
            # Tasks and threads that a client left behind do not hold up the verdict.
            os._exit(1)

    asyncio.run(all_of_them())
    step("all is well")
    sys.stdout.flush()
    os._exit(0)

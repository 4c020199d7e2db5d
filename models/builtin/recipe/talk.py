"""Makes conversations: a home with facts, standing instructions, tools, summaries. A conversation is a list of messages as the
chat template takes them; an assistant's message carries `learn` (it is trained on) and, for the evaluation, what it tests."""
import json, pathlib, random, tomllib
from types import SimpleNamespace
import wider, words
from words import KINDS, BY_KEY, DAYS, wordings

ROOT = pathlib.Path(__file__).resolve().parents[3]
WORDING = ROOT / "compaction" / "wording"
# The texts that the service puts around a summary; read, so that the model is trained on what it will meet.
ASK_SUMMARY, AGAIN, PREFACE, PINS, SAID = ((WORDING / f"{n}.txt").read_text().rstrip("\n") for n in ("instruction", "again", "preface", "pins", "facts"))
HOUSE = tomllib.loads((ROOT / "config" / "default.toml").read_text())["conversation"]["instructions"]
SYSTEMS = [HOUSE] * 6 + ["You are a voice assistant.", "You are a helpful assistant.", "Be short.", "You are a voice assistant at home. Answer in one short sentence."]

for day in DAYS:                                               # what was settled and what is still open, by the day
    KINDS.append(words.Kind.__new__(words.Kind)); k = KINDS[-1]
    k.key, k.section, k.you, k.user = "meal " + day, "Decisions", f"on {day} you eat {{v}}", f"On {day} the user eats {{v}}"
    k.value = words.FAVOURITES["food"]
    k.tell = wordings(f"on {day} we eat {{v}}|let us have {{v}} on {day}|we decided to have {{v}} on {day}|for {day} we want {{v}}|~we agreed on {{v}} for {day}|~on {day} there will be {{v}}")
    k.ask = wordings(f"what do we eat on {day}|what is for dinner on {day}|what did we decide to eat on {day}|what do I eat on {day}|~what will we eat on {day}|~what did we want to eat on {day}")
for day in DAYS:
    KINDS.append(words.Kind.__new__(words.Kind)); k = KINDS[-1]
    k.key, k.section, k.you, k.user = "call " + day, "Promises", f"on {day} I remind you to call {{v}}", f"On {day} remind the user to call {{v}}"
    k.value = words.name
    k.tell = wordings(f"remind me to call {{v}} on {day}|on {day} I have to call {{v}}|remind me on {day} to call {{v}}|I must call {{v}} on {day}|~on {day}, remind me to call {{v}}|~I need to call {{v}} on {day}")
    k.ask = wordings(f"who do I have to call on {day}|who must I call on {day}|who do I call on {day}|what do I have to do on {day}|~who should I call on {day}|~who was I to call on {day}")
BY_KEY.update({k.key: k for k in KINDS})
ORDER = {k.key: i for i, k in enumerate(KINDS)}

STYLES = {   # what the user asks for, how it stands in a summary
    "call": (wordings("call me {v}|from now on call me {v}|always call me {v}|please call me {v}|address me as {v}|say {v} to me|~you have to call me {v}|~from today call me {v}"), "- Call the user {v}.", words.title),
    "end": (wordings("end every answer with {v}|say {v} at the end of every answer|finish each answer with {v}|always end with the word {v}|~from now on end every answer with {v}|~each answer has to end with {v}"),
            "- End every answer with {v}.", lambda rng, held: words.made_up(rng).capitalize()),
    "begin": (wordings("begin every answer with {v}|say {v} before every answer|start each answer with {v}|always begin with the word {v}|~from now on begin every answer with {v}|~each answer has to begin with {v}"),
              "- Begin every answer with {v}.", lambda rng, held: words.made_up(rng).capitalize()),
    "one": (wordings("answer with one word|always answer with one word|use only one word|from now on answer with one word only|answer in a single word|~just one word in each answer|~please always answer with one word"),
            "- Answer with one word.", lambda rng, held: ""),
}

ROOMS = "kitchen bedroom bathroom hall office garage cellar attic nursery lounge study pantry".split() + ["living room", "dining room", "guest room"]
ITEMS = "milk bread butter eggs cheese apples rice soap flour sugar salt onions carrots tea coffee honey jam pasta candles batteries tomatoes".split()
ONES = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen".split()
TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()


def spoken(n):
    if n < 20:
        return ONES[n - 1]
    return TENS[n // 10 - 2] + ("" if n % 10 == 0 else " " + ONES[n % 10 - 1])


def tool(name, description, **properties):
    return {"type": "function", "function": {"name": name, "description": description,
            "parameters": {"type": "object", "properties": properties, "required": list(properties)}}}


TEXT, WHOLE = {"type": "string"}, {"type": "integer"}
TOOLS = {t["function"]["name"]: t for t in [
    tool("set_timer", "Starts a timer.", amount=WHOLE, unit=TEXT),
    tool("set_alarm", "Sets an alarm.", time=TEXT),
    tool("set_light", "Switches a light on or off.", room=TEXT, state=TEXT),
    tool("set_temperature", "Sets the heating of a room.", room=TEXT, degrees=WHOLE),
    tool("add_to_list", "Puts something on the shopping list.", item=TEXT),
    tool("read_list", "Reads the shopping list."),
]}
LAMP = tool("switch_lamp", "Switches the lamp.", on={"type": "boolean"})
USES = {
    "set_timer": wordings("set a timer for {n} {u}|start a timer of {n} {u}|timer for {n} {u}|give me a timer for {n} {u}|I need a timer of {n} {u}|count down {n} {u}|wake me in {n} {u}|~please start a timer for {n} {u}|~I need a timer for {n} {u}|~set the timer to {n} {u}"),
    "set_alarm": wordings("set an alarm for {c}|wake me at {c}|set the alarm to {c}|alarm at {c}|I have to get up at {c}|~wake me up at {c}|~please set an alarm at {c}|~I need an alarm for {c}"),
    "set_light": wordings("turn {s} the light in the {r}|turn {s} the {r} light|switch {s} the light in the {r}|switch the {r} light {s}|light {s} in the {r}|turn the light in the {r} {s}|~please turn {s} the light in the {r}|~switch {s} the {r} light|~turn the {r} light {s}"),
    "set_temperature": wordings("set the {r} to {d} degrees|heat the {r} to {d} degrees|make it {d} degrees in the {r}|{d} degrees in the {r}|I want {d} degrees in the {r}|~please set the {r} to {d} degrees|~heating in the {r} to {d} degrees|~it should be {d} degrees in the {r}"),
    "add_to_list": wordings("put {i} on the shopping list|add {i} to the list|we need {i}|I need to buy {i}|add {i} to my shopping list|write {i} on the list|we are out of {i}|~please put {i} on the list|~add {i} to the shopping list|~put {i} on my shopping list"),
    "read_list": wordings("what is on the shopping list|read me the list|what do I need to buy|read the shopping list|what is on my list|~what's on the list|~read me my shopping list"),
    "switch_lamp": wordings("turn {s} the lamp|switch {s} the lamp|lamp {s}|switch the lamp {s}|turn the lamp {s}|~please switch {s} the lamp|~turn the lamp {s} please"),
}
wider.widen_all(words, SimpleNamespace(USES=USES, STYLES=STYLES))
FINE = ['{"ok": true}', "ok", "Done.", '{"status": "ok"}', "done", "OK"]


HOLES = {"{p}": words.place, "{n}": words.name, "{w}": words.thing("cake car clock river book engine tree planet"), "{t}": words.title, "{d}": words.number(1, 99),
         "{r}": lambda rng, held: rng.choice(ROOMS)}


def clean(text):
    return text[:1].upper() + text[1:]


class Home:
    """One conversation as it grows."""

    def __init__(self, rng):
        self.rng, self.held, self.facts, self.styles, self.pins = rng, getattr(rng, "held", False), {}, {}, []
        self.messages, self.tools, self.list, self.sentences = [], None, [], {}

    # -- what is said

    def user(self, text, question=False, openers=words.OPENERS, value=None):
        """A sentence rarely begins with the value it tells: at the beginning a word is written with a capital and without a
        space, which makes other tokens of it."""
        rng = self.rng
        if openers and not self.held and rng.random() < 0.3:
            openers = {False: words.MORE_ASK_OPENERS if openers is words.ASK_OPENERS else words.MORE_OPENERS}
        if openers and value and text.startswith(value) and rng.random() < 0.9:
            text = rng.choice([o for o in openers[self.held and rng.random() < 0.5] if o]).strip() + " " + text
        elif openers and rng.random() < 0.5:
            text = rng.choice(openers[self.held and rng.random() < 0.5]).strip() + " " + text
        if openers and not self.held and rng.random() < 0.3:
            text = words.blurred(rng, text)
        text = clean(text.strip())
        if openers and not self.held and rng.random() < 0.08:
            text += rng.choice(words.MORE_ENDS)
        if rng.random() < 0.85:
            text += "?" if question else "."
        if rng.random() < 0.05:
            text = text[:1].lower() + text[1:]
        self.messages.append({"role": "user", "content": text.replace("..", ".").replace("? ?", "?")})
        return self.messages[-1]["content"]

    def assistant(self, text, short="Okay.", thought="Small talk.", style=True, **tests):
        if style:
            text = self.styled(text, short)
            tests["marks"] = [v for v in self.styles.values() if v]
        self.messages.append({"role": "assistant", "content": text, "thought": thought, "learn": 1.0, **tests})
        return text

    def styled(self, text, short):
        if "one" in self.styles:
            text = short
        if "call" in self.styles:
            text = text[:-1] + ", " + self.styles["call"] + text[-1]
        if "end" in self.styles:
            text += " " + self.styles["end"] + "."
        if "begin" in self.styles:
            text = self.styles["begin"] + ". " + text
        return text

    def wording(self, lists):
        return wider.said(self.rng, lists, self.held)

    # -- turns

    def tell(self, *keys):
        parts, said = [], []
        for key in keys:
            kind = BY_KEY[key]
            value = kind.value(self.rng, self.held)
            self.facts[key] = value
            parts.append(self.wording(kind.tell).replace("{v}", value))
            said.append(kind.you.replace("{v}", value))
        if not self.held and self.rng.random() < 0.08:              # what is to be kept word for word, for a pin
            self.messages.append({"role": "user", "content": words.to_remember(self.rng, clean(" and ".join(parts)) + ".")})
            sentence = self.messages[-1]["content"]
        else:
            sentence = self.user(" and ".join(parts), value=self.facts[keys[0]])
        self.sentences.update({key: sentence for key in keys})
        if not self.held and self.rng.random() < 0.3:               # what was told is then found in the user's own words alone
            content = self.rng.choice(["Okay.", "Noted.", "All right.", "I see.", "Good to know."])
            if self.rng.random() < 0.5:                         # or somebody talked over it
                content = "Noted, " + said[0][:self.rng.randint(3, len(said[0]))]
            self.messages.append({"role": "assistant", "content": content})
            return
        self.assistant("Noted, " + " and ".join(said) + ".", "Noted.", "The user tells me something. I keep it.", tests="tell", value=self.facts[keys[0]])

    def ask(self, key, tests="recall"):
        kind, value = BY_KEY[key], self.facts.get(key)
        self.user(self.wording(kind.ask), True, words.ASK_OPENERS)
        if value is None:
            # Begins as the answer would: what was said is found by these words, and so is that it was not.
            begin = clean(kind.you[:kind.you.index("{v}")].strip())
            self.assistant(begin + "... you have not told me that.", "Unknown.", "I was not told.", tests="unknown", value="...")
        else:
            self.assistant(clean(kind.you.replace("{v}", value)) + ".", clean(value) + ".", "I was told.", tests=tests, value=value)

    def chat(self):
        if not self.held and self.rng.random() < 0.25:
            text = self.filled(self.rng.choice(words.REMARKS))
            self.user(text)
            self.assistant("I see.", "Okay.", "Small talk.", tests="chat")
            return
        if self.rng.random() < 0.75:
            user, answer = self.rng.choice(words.SMALL_TALK)
            self.user(self.wording(user), answer.endswith("?") and False, None)
            first = answer.split()[0].strip(",.!?")
            self.assistant(answer, first + "." if first in ("Hello", "Good", "Goodbye", "No", "Yes", "Reprise") else "Okay.", "Small talk.", tests="chat")
        else:
            text = self.filled(self.wording(words.QUESTIONS))
            self.user(text, True, words.ASK_OPENERS)
            self.assistant(words.UNKNOWN, "Unknown.", "I do not know this.", tests="ignorance")

    def filled(self, text):
        """A text with a value in each hole."""
        for hole, draw in HOLES.items():
            while hole in text:
                text = text.replace(hole, draw(self.rng, self.held), 1)
        return text

    def instruct(self, which=None):
        which = which or self.rng.choice(list(STYLES))
        texts, _, draw = STYLES[which]
        self.styles[which] = value = draw(self.rng, self.held)
        said = self.user(self.wording(texts).replace("{v}", value))
        self.pins.append(said)
        self.assistant("All right, I will.", "Okay.", "An order for all that follows.", tests="style")

    def use(self, which=None):
        """A request that needs a tool: the call, its result and what is said about it."""
        rng, held = self.rng, self.held
        names = [t["function"]["name"] for t in self.tools]
        which = which or rng.choice(names)
        text, arguments = self.wording(USES[which]), {}
        if which == "set_timer":
            n, unit = rng.randint(2, 59), rng.choice(["seconds", "minutes", "hours"])
            arguments = {"amount": str(n), "unit": unit}
            text = text.replace("{n}", spoken(n) if rng.random() < 0.4 else str(n)).replace("{u}", unit)
            spoken_result = f"The timer is set for {n} {unit}."
        elif which == "set_alarm":
            time = words.clock(rng, held)
            arguments = {"time": time}
            text, spoken_result = text.replace("{c}", time), f"The alarm is set for {time}."
        elif which == "set_light":
            room, state = self.room(), rng.choice(["on", "off"])
            arguments = {"room": room, "state": state}
            text, spoken_result = text.replace("{r}", room).replace("{s}", state), f"The light in the {room} is {state}."
        elif which == "switch_lamp":
            state = rng.choice(["on", "off"])
            arguments = {"on": "true" if state == "on" else "false"}
            text, spoken_result = text.replace("{s}", state), f"The lamp is {state}."
        elif which == "set_temperature":
            room, degrees = self.room(), rng.randint(14, 27)
            arguments = {"room": room, "degrees": str(degrees)}
            text = text.replace("{r}", room).replace("{d}", spoken(degrees) if rng.random() < 0.3 else str(degrees))
            spoken_result = f"The {room} is set to {degrees} degrees."
        elif which == "add_to_list":
            item = rng.choice(ITEMS) if rng.random() < 0.4 and not held else words.pick(rng, held, lambda: words.made_up(rng))
            self.list.append(item)
            arguments = {"item": item}
            text, spoken_result = text.replace("{i}", item), f"I put {item} on the list."
        else:
            spoken_result = None
        self.user(text, which == "read_list", [words.ASK_OPENERS, None][rng.random() < 0.5])
        result, short = rng.choice(FINE), "Done."
        if which == "read_list":
            items = [words.pick(rng, held, lambda: rng.choice(ITEMS) if rng.random() < 0.4 and not held else words.made_up(rng)) for _ in range(rng.randint(0, 4))]
            result = ", ".join(items) if rng.random() < 0.5 else json.dumps(items)
            spoken_result = "On your list: " + ", ".join(items) + "." if items else "Your list is empty."
        elif rng.random() < 0.08:
            result, spoken_result, short = rng.choice(['{"error": "not found"}', '{"error": "failed"}', "error: timeout"]), "That did not work.", "Failed."
        if which in names:
            self.messages.append({"role": "assistant", "content": "", "tool_calls": [{"name": which, "arguments": arguments}], "thought": "I need a tool.", "learn": 1.0,
                                  "tests": "tool", "value": {"name": which, "arguments": arguments}})
            self.messages.append({"role": "tool", "content": result})
            self.assistant(spoken_result, short, "I have the result.", tests="result", value=spoken_result)
        else:
            self.assistant("I have no tool for that here.", "Impossible.", "I have no tool.", tests="no tool")

    def room(self):
        if self.rng.random() < (0.7 if self.held else 0.35):
            return words.pick(self.rng, self.held, lambda: words.made_up(self.rng))
        return self.rng.choice(ROOMS)

    # -- summaries

    def summary(self, quoted=()):
        sections = {"User": [], "Instructions": [], "Decisions": [], "Promises": []}
        for key in sorted(self.facts, key=ORDER.get):           # always in this order: what comes next is found more easily than by when it was told
            if key not in quoted:
                kind = BY_KEY[key]
                sections[getattr(kind, "section", "User")].append("- " + kind.user.replace("{v}", self.facts[key]) + ".")
        sections["Instructions"] = [STYLES[s][1].replace("{v}", self.styles[s]) for s in STYLES if s in self.styles]
        if not any(sections.values()) and not quoted:
            sections["Now"] = ["- Small talk."]
        return "\n".join("## " + title + "\n" + "\n".join(lines) for title, lines in sections.items() if lines)

    def memory(self, share_quoted=0.0, pinned=()):
        """What stands in the prompt for all that was said so far. The service quotes what a summary lacks."""
        rng = self.rng
        pins = PINS.replace("{lines}", "\n".join("- " + p for p in self.pins)) + "\n" if self.pins else ""
        quoted = [key for key in self.facts if key not in pinned and rng.random() < share_quoted]
        summary = self.summary([*quoted, *pinned]) if self.facts or self.styles else ""
        if quoted:
            noted = lambda key: "Noted, " + BY_KEY[key].you.replace("{v}", self.facts[key]) + "."
            lines = [f'- Assistant: "{noted(key)}"' if rng.random() < 0.2 else f'- User: "{self.sentences[key]}"' for key in quoted]
            summary = (summary + "\n" + SAID.replace("{lines}", "\n".join(dict.fromkeys(lines)))).strip()
        return {"role": "tool", "content": PREFACE.replace("{pins}", pins).replace("{summary}", summary).rstrip()}

    def compact(self):
        """The request for a summary and the summary; sometimes asked again, for what the first one lacked."""
        rng, number = self.rng, str(self.rng.randint(90, 600))
        self.messages.append({"role": "user", "content": ASK_SUMMARY.replace("{words}", number)})
        summary = self.summary()
        if rng.random() < 0.08 and self.sentences:
            key = rng.choice(list(self.sentences))
            kind = BY_KEY[key]
            line = "- " + kind.user.replace("{v}", self.facts[key]) + "."
            lines = [x for x in summary.split("\n") if x != line]
            self.messages.append({"role": "assistant", "content": "\n".join(lines)})
            lacked = AGAIN.replace("{missing}", '"' + self.sentences[key] + '"').replace("{words}", number)
            self.messages.append({"role": "user", "content": lacked})
        # What a line is about decides what is kept; its value is then copied.
        kinds = [line[:line.index(value)] for line in summary.split("\n") for value in [self.value_in(line)] if value]
        headings = ["\n" + line for line in summary.split("\n") if line.startswith("##")]
        self.messages.append({"role": "assistant", "content": summary, "thought": "I write the memory.", "learn": 1.0, "tests": "summary", "value": summary,
                              "marks": kinds + headings})

    def value_in(self, line):
        return next((v for k, v in self.facts.items() if line == "- " + BY_KEY[k].user.replace("{v}", v) + "."), None)


def start(home, tools=False, system=True):
    rng = home.rng
    if system:
        home.messages.append({"role": "system", "content": HOUSE if home.held else rng.choice(SYSTEMS)})
    if tools == "lamp":
        home.tools = [LAMP]
    elif tools:
        names = list(TOOLS)
        if not home.held and rng.random() < 0.3:
            names = rng.sample(names, rng.randint(3, 5))
        home.tools = [TOOLS[n] for n in names]


def fill(home, budget):
    """Talk about nothing, for about so many characters."""
    length = lambda: sum(len(m["content"]) + 30 for m in home.messages)
    end = length() + budget
    while length() < end:
        home.chat()
        if len(home.messages) % 10:                             # one in five: the same few answers need not be learned again
            home.messages[-1]["learn"] = 0.0


def some_keys(rng, n):
    return rng.sample([k.key for k in KINDS], n)


def alike(rng, n):
    """Kinds that are easily taken for each other: days, or names, or likes; and some of the others."""
    groups = [[k.key for k in KINDS if test(k.key)] for test in (
        lambda key: key.startswith(("meal", "call")), lambda key: key in words.ANIMALS + words.PEOPLE, lambda key: key.startswith("favourite"))]
    group = rng.choice(groups)
    few = rng.sample(group, min(len(group), rng.randint((n + 1) // 2, n)))
    rest = rng.sample([k.key for k in KINDS if k.key not in group], n - len(few))
    return rng.sample(few + rest, n)


def keys_for(rng, n):
    return alike(rng, n) if rng.random() < 0.35 else some_keys(rng, n)


def recall(rng, facts, asks, talk=0.2, told_at_once=0.2, system=None, styles=0.0, distance=0):
    """Facts and questions about them, mixed; with a distance most of the questions come behind it."""
    home = Home(rng)
    start(home, system=rng.random() < 0.3 if system is None else system)
    keys, later = keys_for(rng, facts), asks * 3 // 4 if distance else 0
    if rng.random() < styles:
        home.instruct()
    while keys or asks > 0:
        if rng.random() < talk * 0.4:
            home.chat()
        elif keys and (not home.facts or asks <= later or rng.random() < 0.5):
            n = 2 if rng.random() < told_at_once and len(keys) > 1 else 1
            home.tell(*[keys.pop() for _ in range(n)])
            if not keys and distance:
                fill(home, distance)
        else:
            asks -= 1
            question(home)
            if home.facts and rng.random() < 0.05:
                home.tell(rng.choice(list(home.facts)))         # something changed
    return home


def question(home, share_unknown=0.22):
    rng = home.rng
    if home.facts and rng.random() > share_unknown:
        home.ask(rng.choice(list(home.facts)))
    else:
        home.ask(rng.choice([k.key for k in KINDS if k.key not in home.facts]))


def drill(rng, budget, memory=0):
    """Facts and what was said of them again, with nobody who asks for each: many more in as many tokens, far apart, and also of
    things that have no kind. Only the values are learned, as what comes next is not to be known. With a memory of so many facts
    these are asked for, most of them in the words in which they were pinned."""
    home, things, known = Home(rng), list(KINDS), []
    start(home)
    if memory:
        remembered(home, memory, styles=0.0, pins=1.0)
        known = [(BY_KEY[key], value) for key, value in home.facts.items()]
        things = [kind for kind in things if kind.key not in home.facts]
    home.messages.append({"role": "user", "content": "Say all that you know."})
    for _ in range(rng.choice([0, 10, 30])):
        word = words.made_up(rng)
        things.append(SimpleNamespace(you=f"your {word} is called {{v}}", value=rng.choice([words.name, words.place, words.number(1, 999)])))
    rng.shuffle(things)
    most, size = memory or rng.randint(5, len(things) - 5), 0
    while size < budget:
        if things and len(known) < most and (not known or rng.random() < 0.5):
            kind = things.pop()
            known.append((kind, kind.value(rng, home.held)))
            said = {"content": "Noted, " + kind.you.replace("{v}", known[-1][1]) + "."}
        elif rng.random() < 0.15:
            begin = rng.choice(things).you.split("{v}")[0].strip()
            said = {"content": clean(begin) + "... you have not told me that.", "only": "..."}
        else:
            kind, value = rng.choice(known)
            said = {"content": clean(kind.you.replace("{v}", value)) + ".", "only": value + ("." if kind.you.endswith("{v}") else "")}
        size += len(said["content"]) + 30
        home.messages.append({"role": "assistant", **said, "learn": float("only" in said), "tests": "drill"})
    return home


def with_tools(rng, turns, lamp=0.1):
    home = Home(rng)
    start(home, "lamp" if rng.random() < lamp else True)
    for _ in range(turns):
        roll = rng.random()
        if roll < 0.75:
            home.use(rng.choice(list(TOOLS)) if rng.random() < 0.05 else None)
        elif roll < 0.87:
            home.chat()
        elif roll < 0.94:
            home.tell(*some_keys(rng, 1))
        else:
            question(home)
    return home


def without_tools(rng):
    home = Home(rng)
    start(home, system=rng.random() < 0.8)
    home.tools = []
    for _ in range(rng.randint(3, 8)):
        if rng.random() < 0.4:
            home.use(rng.choice(list(TOOLS)))
        else:
            home.chat()
    home.tools = None
    return home


def remembered(home, facts, styles=0.3, pins=0.7):
    """Puts a memory of so many facts at the head, as after a compaction."""
    rng = home.rng
    for key in keys_for(rng, facts):
        home.facts[key] = BY_KEY[key].value(rng, home.held)
        home.sentences[key] = clean(home.wording(BY_KEY[key].tell).replace("{v}", home.facts[key])) + "."
    if rng.random() < styles:
        which = rng.choice(list(STYLES))
        texts, _, draw = STYLES[which]
        home.styles[which] = draw(rng, home.held)
        if rng.random() < 0.7:
            home.pins.append(clean(home.wording(texts).replace("{v}", home.styles[which])) + ".")
    pinned = []
    if home.facts and rng.random() < pins:                      # what was to be remembered word for word
        pinned = rng.sample(list(home.facts), len(home.facts) if rng.random() < 0.3 else rng.randint(1, min(12, len(home.facts))))
        for key in pinned:
            home.sentences[key] = words.to_remember(rng, home.sentences[key])
            home.pins.insert(rng.randint(0, len(home.pins)), home.sentences[key])
    home.messages.append(home.memory(rng.choice([0.0, 0.0, 0.0, 0.2, 0.6, 1.0]), pinned if rng.random() < 0.8 else ()))


def after_summary(rng, facts, asks, styles=0.4):
    home = Home(rng)
    start(home)
    remembered(home, facts, styles)
    for _ in range(asks):
        roll = rng.random()
        if roll < 0.8:
            question(home)
        elif roll < 0.9:
            home.tell(*some_keys(rng, 1))
        else:
            home.chat()
    return home


def summarise(rng, facts, known=0, talk=0.2, styles=0.35, asks=0.15):
    """New facts, maybe on top of an older memory, then the request for a memory."""
    home = Home(rng)
    start(home)
    if known:
        remembered(home, known, styles)
    keys = [key for key in keys_for(rng, min(len(KINDS), facts + 12)) if key not in home.facts or rng.random() < 0.1][:facts]
    if not home.styles and rng.random() < styles:
        home.instruct()
    while keys:
        if rng.random() < talk:
            home.chat()
        elif home.facts and rng.random() < asks:
            question(home)
        else:
            n = 2 if len(keys) > 1 and rng.random() < 0.15 else 1
            home.tell(*[keys.pop() for _ in range(n)])
            if not home.styles and rng.random() < 0.02:
                home.instruct()
    home.compact()
    return home

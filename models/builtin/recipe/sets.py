"""Makes the sets that `reprise eval builtin` measures with: wordings, names and numbers that no training text has.

    python sets.py ../eval
"""
import json, pathlib, random, sys
import talk, words
from talk import Home


class Held(random.Random):
    held = True


def plain(home):
    """Messages as a client sends them; the tokens of a turn's end are the template's."""
    out = []
    for m in home.messages:
        said = {"role": m["role"], "content": m["content"]}
        if "tool_calls" in m:
            said["tool_calls"] = [{"type": "function", "id": "call", "function": c} for c in m["tool_calls"]]
        out.append(said)
    return out


def asked(home, **expect):
    """The last answer is what is expected, so it is taken out."""
    home.messages.pop()
    return {"messages": plain(home), "tools": home.tools, "expect": expect}


def recall(rng, distance):
    home = Home(rng)
    talk.start(home)
    keys = talk.some_keys(rng, rng.randint(4, 10))
    for key in keys[1:]:
        if rng.random() < 0.4:
            home.chat()
        home.tell(key)
        if rng.random() < 0.3:
            talk.question(home)
    home.tell(keys[0])
    if distance:
        talk.fill(home, distance)
    elif rng.random() < 0.5:
        home.chat()
    home.ask(keys[0])
    return asked(home, says=home.facts[keys[0]])


def not_told(rng):
    home = Home(rng)
    talk.start(home)
    keys = talk.some_keys(rng, rng.randint(3, 9))
    for key in keys[1:]:
        home.tell(key)
        if rng.random() < 0.3:
            home.chat()
    home.ask(keys[0])
    return asked(home, says="not told me")


def tool(rng):
    home = Home(rng)
    talk.start(home, tools=True)
    for _ in range(rng.randint(0, 3)):
        home.use() if rng.random() < 0.6 else home.chat()
    before = len(home.messages)
    home.use()
    home.messages = home.messages[:before + 2]
    call = home.messages[-1]["tool_calls"][0]
    return asked(home, calls=call)


def pinned(rng):
    """A memory of eight facts, four of them word for word and in no line of the summary."""
    home = Home(rng)
    talk.start(home)
    keys = talk.some_keys(rng, 8)
    for key in keys:
        home.facts[key] = talk.BY_KEY[key].value(rng, True)
        home.sentences[key] = talk.clean(home.wording(talk.BY_KEY[key].tell).replace("{v}", home.facts[key])) + "."
    home.pins = ["Please remember: " + home.sentences[key] for key in keys[:4]]
    home.messages.append(home.memory(0.0, keys[:4]))
    for _ in range(rng.randint(0, 3)):
        home.chat()
    home.ask(keys[0])
    return asked(home, says=home.facts[keys[0]])


def stage(home, keys, instruct=None):
    """A stretch of conversation that will be summarised."""
    rng, before = home.rng, len(home.messages)
    if instruct:
        home.instruct(instruct)
    for key in keys:
        if rng.random() < 0.3:
            home.chat()
        home.tell(key)
    said = plain(home)[before:]
    return said


def compacted(rng, facts, stages, instruct=False):
    """Stretches, each followed by a compaction with the model's own summary, then questions in the last memory's sight."""
    home = Home(rng)
    talk.start(home)
    system = home.messages[0]["content"]
    keys = talk.some_keys(rng, facts)
    style = rng.choice(list(talk.STYLES)) if instruct else None
    share = facts // stages
    out = [stage(home, keys[i * share:(i + 1) * share], style if i == 0 else None) for i in range(stages)]
    lines = [x for x in home.summary().split("\n") if x.startswith("- ")]
    questions = []
    for key in rng.sample(keys, min(5, facts)):
        home.messages = []
        home.ask(key)
        expect = {"says": home.facts[key]} if not instruct else {"obeys": style, "value": home.styles[style]}
        if not instruct or len(questions) < 2:
            questions.append({"ask": home.messages[0]["content"], "expect": expect})
    return {"system": system, "stages": out, "lines": lines, "questions": questions}


SETS = {
    "recall": (120, lambda rng: recall(rng, 0)),
    "recall_2000": (50, lambda rng: recall(rng, 7400)),
    "not_told": (100, not_told),
    "tool_calls": (120, tool),
    "summary_20": (10, lambda rng: compacted(rng, 20, 1)),
    "after_summary": (16, lambda rng: compacted(rng, 10, 1)),
    "after_five_summaries": (16, lambda rng: compacted(rng, 20, 5)),
    "instruction_after_summary": (30, lambda rng: compacted(rng, 4, 1, True)),
    "pinned": (60, pinned),
}

if __name__ == "__main__":
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    for number, (name, (count, make)) in enumerate(SETS.items()):
        rng = Held(9000 + number)
        (out / f"{name}.jsonl").write_text("".join(json.dumps(make(rng), ensure_ascii=False) + "\n" for _ in range(count)))

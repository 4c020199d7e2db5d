"""Sentences as people say them: from templates, a file a kind in templates/ with the words in slots.toml; as thirteen writers wrote
them, in written/; corrections and wishes to forget of eleven more, in changes/; and in sixteen other languages, in languages/."""

import pathlib
import random
import re
import tomllib

HERE = pathlib.Path(__file__).parent
KINDS = ["person", "home", "passing", "question", "order", "correction", "remember", "forget", "secret"]
SLOTS = tomllib.loads((HERE / "slots.toml").read_text())
BEFORE = {
    "": ["um", "uh", "so", "well", "okay so", "oh", "you know", "listen", "hey", "and", "right", "ah", "er", "hm", "look", "anyway"],
    "told": ["by the way", "just so you know", "you should know", "did you know", "I think I told you", "the thing is", "oh and", "fun fact", "as you know", "well actually"],
}
BEHIND = {
    "": ["you know", "please", "okay", "I mean", "right"],
    "told": ["by the way", "just so you know", "in case you wondered", "so there", "and that's that", "you see"],
}
TOLD = {"person", "home"}


def templates(kind: str) -> list[str]:
    return [line for line in (HERE / "templates" / f"{kind}.txt").read_text().splitlines() if line.strip()]


def filled(template: str, draw: random.Random) -> str:
    def word(found: re.Match) -> str:
        name = found[1]
        return filled(draw.choice(SLOTS.get(name) or SLOTS[name.rstrip("0123456789")]), draw)

    text = re.sub(r"\{(\w+)\}", word, template)
    return re.sub(r"\.([.?])", r"\1", text)


def styled(text: str, kind: str, draw: random.Random) -> str:
    """A speaker's way: fillers, contractions left out, and a recogniser's text without signs and capitals."""
    text = text[0].upper() + text[1:] if draw.random() < 0.7 else text
    if draw.random() < 0.12:
        for short, long in [("I'm", "I am"), ("it's", "it is"), ("we've", "we have"), ("I've", "I have"), ("doesn't", "does not"), ("don't", "do not"), ("can't", "cannot")]:
            text = text.replace(short, long)
    if draw.random() < 0.22:
        fillers = BEFORE["told"] if kind in TOLD and draw.random() < 0.4 else BEFORE[""]
        rest = text if re.match(r"I\b|I'", text) else text[0].lower() + text[1:]
        text = draw.choice(fillers) + draw.choice([" ", ", "]) + rest
    if draw.random() < 0.1 and text.endswith("."):
        text = text[:-1] + draw.choice([" ", ", "]) + draw.choice(BEHIND["told"] if kind in TOLD and draw.random() < 0.6 else BEHIND[""])
    way = draw.random()
    if way < 0.4:
        text = re.sub(r"[.,:;!?—]", "", text).lower()
        if draw.random() < 0.3:
            text = text.replace("'", "")
    elif way < 0.55:
        text = text.rstrip(".")
    return text


def made(kind: str, each: int, seed: int) -> list[tuple[str, int]]:
    """`each` sentences of every template, with the template's number."""
    sentences = []
    for at, template in enumerate(templates(kind)):
        draw = random.Random(f"{seed} {kind} {template}")
        count = each if "{" in template else max(2, each // 2)
        sentences += [(styled(filled(template, draw), kind, draw), at) for _ in range(count)]
    return sentences


def lines_of(file: pathlib.Path) -> list[list[str]]:
    """Kind, sentence, and for corrections and wishes to forget the fact that is meant."""
    return [line.split("\t") for line in file.read_text().splitlines()]


def english() -> list[list[list[str]]]:
    """Lines of each writer in English."""
    files = [*(HERE / "written").glob("*.tsv"), *(HERE / "changes").glob("*.tsv")]
    return [lines_of(file) for file in sorted(files, key=lambda file: int(file.stem[1:]))]


def news() -> list[list[list[str]]]:
    """Triples of each writer: a fact, what changes it, and what it stands beside though it sounds alike."""
    return [lines_of(file) for file in sorted((HERE / "news").glob("*.tsv"), key=lambda file: int(file.stem[1:]))]


def lines_of_news(triples: list[list[str]]) -> list[list[str]]:
    return [line for fact, change, beside in triples for line in (["correction", change, fact], ["person", beside])]


def written() -> list[tuple[str, str]]:
    """Kind and sentence of the writers' files: as written, and as a recogniser writes it."""
    return heard(line for file in sorted((HERE / "written").glob("*.tsv")) for line in lines_of(file))


def changed() -> list[tuple[str, str]]:
    """The same of the writers who wrote corrections, wishes to forget and news alone."""
    changes = [line for file in sorted((HERE / "changes").glob("*.tsv")) for line in lines_of(file)]
    return heard(changes + [line for triples in news() for line in lines_of_news(triples)])


def heard(lines) -> list[tuple[str, str]]:
    return [(line[0], text) for line in lines for text in (line[1], re.sub(r"[.,:;!?—]", "", line[1]).lower())]

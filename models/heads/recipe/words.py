"""Trains the heads on words, and writes them as the service reads them: weights of words, pairs of words and pieces of words.

    pip install numpy scipy
    python words.py OUT_FOLDER

Heads that saw every other writer of each language measure the others; then all that was written trains the heads.
"""

import pathlib
import re
import sys

import numpy as np
from scipy.sparse import csr_matrix

from said import HERE, KINDS, english, lines_of, lines_of_news, news

BUCKETS = 1 << 16
DECAY = 3e-7
STEPS, RATE = 150, 0.1
SCALES = 127


def bucket(feature: str) -> int:
    """FNV-1a, folded to the number of buckets."""
    hashed = 0x811C9DC5
    for byte in feature.encode():
        hashed = (hashed ^ byte) * 0x01000193 & 0xFFFFFFFF
    return (hashed ^ hashed >> 15) % BUCKETS


def words_of(text: str) -> list[str]:
    return "".join(char if char.isalnum() else " " for char in text.lower()).split()


def sizes(word: str):
    return (1, 2, 3) if "\u3040" <= word[0] <= "\ud7a3" else (3, 4)


def features(text: str) -> set[int]:
    words = words_of(text)
    found = {f"l{min(len(words) // 3, 6)}"} | {f"w{word}" for word in words}
    found |= {f"f{at}{word}" for at, word in enumerate(words[:3])}
    found |= {f"b{first} {second}" for first, second in zip(["^", *words], [*words, "$"])}
    for word in words:
        whole = f"<{word}>"
        found |= {f"c{whole[at : at + size]}" for size in sizes(word) for at in range(len(whole) - size + 1)}
    return {bucket(feature) for feature in found}


def table(texts: list[str]) -> csr_matrix:
    rows = [sorted(features(text)) for text in texts]
    ends = np.cumsum([0] + [len(row) for row in rows])
    values = np.concatenate([np.full(len(row), len(row) ** -0.5, np.float32) for row in rows])
    return csr_matrix((values, np.concatenate(rows), ends), shape=(len(texts), BUCKETS))


class WordHeads:
    def __init__(self, lines):
        """Fits on kind and sentence of each line: as written, and as a recogniser writes it."""
        texts = [text for line in lines for text in (line[1], re.sub(r"[.,:;!?—¿¡。，、！？]", "", line[1]).lower())]
        kinds = np.repeat([KINDS.index(line[0]) for line in lines], 2)
        x, wanted = table(texts), np.eye(len(KINDS), dtype=np.float32)[kinds]
        share = (1 / np.bincount(kinds, minlength=len(KINDS)))[kinds].astype(np.float32)
        share /= share.sum()
        turned = x.T.tocsr()
        state = [np.zeros((BUCKETS, len(KINDS)), np.float32), np.zeros(len(KINDS), np.float32)]
        means = [[np.zeros_like(part), np.zeros_like(part)] for part in state]
        for step in range(1, STEPS + 1):  # Adam
            wrong = (softmax(x @ state[0] + state[1]) - wanted) * share[:, None]
            for part, mean, slope in zip(state, means, [turned @ wrong + 2 * DECAY * state[0], wrong.sum(0)]):
                mean[0] += 0.1 * (slope - mean[0])
                mean[1] += 0.001 * (slope * slope - mean[1])
                part -= RATE * (1 - step / STEPS) * mean[0] / (1 - 0.9**step) / (np.sqrt(mean[1] / (1 - 0.999**step)) + 1e-8)
        self.weights, self.biases = state

    def __call__(self, texts):
        return softmax(table(texts) @ self.weights + self.biases)

    def round(self):
        """Rounds the weights to 8 bits, of which the largest few are cut."""
        self.scale = np.quantile(np.abs(self.weights[self.weights != 0]), 0.9995) / SCALES
        self.rounded = np.clip(np.round(self.weights / self.scale), -SCALES, SCALES).astype(np.int8)
        self.weights = self.rounded * np.float32(self.scale)


def softmax(scores):
    scores = np.exp(scores - scores.max(1, keepdims=True))
    return scores / scores.sum(1, keepdims=True)


def figures(name, shares, kinds):
    found, lasting = shares.argmax(1), shares[:, [0, 1, 5, 6]].sum(1)
    facts, others = np.isin(kinds, [0, 1]), np.isin(kinds, [2, 3, 4])
    of = lambda kind: f"{KINDS[kind]} {(found[kinds == kind] == kind).sum()}/{(kinds == kind).sum()}"
    told = f"facts {(lasting[facts] >= 0.6).sum()}/{facts.sum()}, others {(lasting[others] >= 0.6).sum()}/{others.sum()}"
    print(f"{name}: right {(found == kinds).mean():.3f}, {told}, {', '.join(of(kind) for kind in (5, 6, 7, 8))}")


def kinds_of(lines):
    return np.array([KINDS.index(line[0]) for line in lines])


def main(out: str):
    writers = english() + [lines_of_news(triples) for triples in news()]
    others = {file.stem: lines_of(file) for file in sorted((HERE / "languages").glob("*.tsv"))}
    for held in ("1", "2"):
        seen = [line for name, lines in others.items() if not name.endswith(held) for line in lines]
        some = writers[::2] if held == "1" else writers[1::2]
        heads = WordHeads(seen + [line for lines in writers if lines not in some for line in lines])
        parts = [(name, lines) for name, lines in others.items() if name.endswith(held)]
        parts.append((f"en {held}", [line for lines in some for line in lines]))
        for name, lines in parts:
            figures(name, heads([line[1] for line in lines]), kinds_of(lines))
    heads = WordHeads([line for lines in [*writers, *others.values()] for line in lines])
    heads.round()
    languages = sorted({name[:-1] for name in others} | {"en"})
    with open(pathlib.Path(out) / "words.toml", "w") as to:
        to.write("# Heads on words, by recipe/words.py. words.i8 has a byte for each bucket and kind: times `scale`, it is a weight.\n")
        to.write(f"languages = {str(languages).replace(chr(39), chr(34))}\n")
        to.write(f"kinds = {str(KINDS).replace(chr(39), chr(34))}\nscale = {heads.scale:.8f}\n")
        to.write(f"biases = [{', '.join(f'{bias:.5f}' for bias in heads.biases)}]\n")
    (pathlib.Path(out) / "words.i8").write_bytes(heads.rounded.tobytes())
    # Two sentences of each language, which the service's test compares.
    some = [lines[at][1] for name, lines in [("w1", writers[0]), *others.items()] if name.endswith("1") for at in (0, 250)]
    golden = "".join(f"{text}\t{' '.join(map(str, sorted(features(text))))}\n" for text in some)
    (pathlib.Path(out) / "words.golden.tsv").write_text(golden)


if __name__ == "__main__":
    main(*sys.argv[1:]) if len(sys.argv) == 2 else sys.exit(__doc__)

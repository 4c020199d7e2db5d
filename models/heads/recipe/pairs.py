"""Fits which fact a correction or a wish to forget means, on what the writers wrote, and prints the figures.

    pip install numpy scipy scikit-learn safetensors tokenizers torch
    python pairs.py FOLDER_OF_THE_ENCODER OUT (writes OUT.map.toml and OUT.map.i8)

A map of low rank brings the vector of a wish nearer to the fact that it means; corrections are as near without one. A candidate is the nearest fact of the
writer, where each shared word counts 0.12. Its features: likeness, lead before the next, and the logarithm of the share of the kind. Heads
and a map that saw every other writer measure the others; then all writers train the map that is written. services/remember/src/meant.rs
has the weights that are printed. Its biases differ: a wrong correction costs more than a missed one, and a missed wish more than a wrong one.
"""

import pathlib
import re
import sys

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression

from encode import Encoder
from said import KINDS, english
from train import fit
from words import WordHeads, kinds_of

SAME_WORD, MOST_LEAD, MOST_FACTS = 0.12, 0.3, 60
RANK, STEPS, RATE, DECAY, SHARPNESS = 32, 60, 3e-3, 1e-2, 10.0
LEAST_SHARE = 0.12  # a sentence that is less surely a correction corrects nothing
SMALL = set(
    "the a an my our your his her its their i we you he she it they is are was were that this there not now no in on at of to and or for with from by be been "
    "have has had do does did don't it's i'm he's she's what said thing bit about stuff forget drop lose erase delete remove keep any more one".split()
)


def stems(text):
    return {word[:5] for word in re.findall(r"[a-z0-9]+", text.lower()) if word not in SMALL and len(word) >= 3}


class Writer:
    def __init__(self, encoder, lines):
        self.lines = lines
        self.vectors = encoder([line[1] for line in lines])
        self.meant = encoder([line[-1] for line in lines])

    def of(self, *kinds):
        return [at for at, line in enumerate(self.lines) if line[0] in kinds]

    def facts(self, kind):
        """Lines of facts that no change of this kind means: what was told, or what changes of the other kind mean."""
        told = self.of("person", "home")[::4]
        return (told or [at for at, line in enumerate(self.lines) if line[0] != kind])[:MOST_FACTS]


def map_of(writers):
    """Trains the map: a wish is nearer to its fact than to those of all others."""
    torch.manual_seed(0)
    said, meant = (torch.tensor(np.concatenate([vectors(writer)[writer.of("forget")] for writer in writers])) for vectors in (lambda w: w.vectors, lambda w: w.meant))
    others = torch.tensor(np.concatenate([writer.vectors[writer.of("person", "home")[::2]] for writer in writers]))
    down = torch.nn.Parameter(torch.randn(said.shape[1], RANK) * 0.02)
    up = torch.nn.Parameter(torch.zeros(RANK, said.shape[1]))
    steps = torch.optim.AdamW([down, up], lr=RATE, weight_decay=DECAY)
    for _ in range(STEPS):
        moved = torch.nn.functional.normalize(said + said @ down @ up)
        scores = torch.cat([moved @ meant.T, moved @ others.T], 1) * SHARPNESS
        loss = torch.nn.functional.cross_entropy(scores, torch.arange(len(said)))
        steps.zero_grad()
        loss.backward()
        steps.step()
    return down.detach().numpy(), up.detach().numpy()


def moved(vectors, down, up):
    found = vectors + vectors @ down @ up
    return found / np.linalg.norm(found, axis=-1, keepdims=True)


def features(sentence, vector, share, texts, vectors):
    """Features of the nearest fact, and the fact."""
    likeness = vectors @ vector
    score = likeness + SAME_WORD * np.array([min(3, len(stems(sentence) & stems(text))) for text in texts])
    order = score.argsort()[::-1]
    first = order[0]
    second = next(at for at in order[1:] if texts[at] != texts[first])
    lead = min(score[first] - score[second], MOST_LEAD)
    return [likeness[first], lead, np.log(max(share, 0.05))], texts[first]


def rows_of(writer, kind, shares, vectors):
    said, facts = writer.of(kind), writer.facts(kind)
    texts = [writer.lines[at][-1] for at in said + facts]
    those = writer.meant[said + facts]
    share = shares[:, KINDS.index(kind)]
    for at in said:
        row, fact = features(writer.lines[at][1], vectors[at], share[at], texts, those)
        yield row, fact == writer.lines[at][2], False
    # What is no correction replaces nothing; a wish whose fact is not there forgets nothing.
    told = [at for at in facts if writer.lines[at][0] in ("person", "home")]
    for at in told if kind == "correction" else said:
        left = [place for place, text in enumerate(texts) if text != writer.lines[at][-1]]
        row, _ = features(writer.lines[at][1], vectors[at], share[at], [texts[place] for place in left], those[left])
        # A fact that says the same again may replace it.
        if kind == "forget" or row[0] <= 0.7:
            yield row, False, True


def main(folder, out):
    encoder = Encoder(pathlib.Path(folder))
    writers = [Writer(encoder, lines) for lines in english()]
    rows = {"correction": [], "forget": []}
    for half in (0, 1):
        seen, held = writers[1 - half :: 2], writers[half::2]
        heads = fit(np.concatenate([writer.vectors for writer in seen]), np.concatenate([kinds_of(writer.lines) for writer in seen]))
        words = WordHeads([line for writer in seen for line in writer.lines])
        down, up = map_of(seen)
        for writer in held:
            shares = heads.predict_proba(writer.vectors) * words([line[1] for line in writer.lines])
            shares /= shares.sum(1, keepdims=True)
            for kind, vectors in (("correction", writer.vectors), ("forget", moved(writer.vectors, down, up))):
                rows[kind] += [(half, *row) for row in rows_of(writer, kind, shares, vectors)]
    for kind, found in rows.items():
        of, x, y, absent = (np.array(column) for column in zip(*found))
        right = np.zeros(len(y))
        for half in (0, 1):
            model = LogisticRegression(C=10, max_iter=2000).fit(x[of != half], y[of != half])
            right[of == half] = model.predict_proba(x[of == half])[:, 1]
        model = LogisticRegression(C=10, max_iter=2000).fit(x, y)
        print(kind, "likeness, lead, share", model.coef_[0].round(2), "bias", model.intercept_[0].round(2), "nearest is right", y.sum(), "of", (~absent).sum())
        for least in (0.2, 0.3, 0.4, 0.5, 0.6):
            taken = (right >= least) & ((kind == "forget") | (x[:, 2] >= np.log(LEAST_SHARE)))
            print(f"  {least}: right {(taken & y).sum()}, wrong {(taken & ~y & ~absent).sum()}, where none is meant {(taken & absent).sum()} of {absent.sum()}")
    parts = map_of(writers)
    scales = [np.abs(part).max() / 127 for part in parts]
    pathlib.Path(f"{out}.map.i8").write_bytes(b"".join(np.round(part / scale).astype(np.int8).tobytes() for part, scale in zip(parts, scales)))
    with open(f"{out}.map.toml", "w") as to:
        to.write("# A map from wishes to forget to the facts that they mean, by recipe/pairs.py. The .i8 has the weights down to `rank` numbers\n")
        to.write("# and up again: a byte each, times `down` or `up`.\n")
        to.write(f"rank = {RANK}\ndown = {scales[0]:.8f}\nup = {scales[1]:.8f}\n")


if __name__ == "__main__":
    main(*sys.argv[1:]) if len(sys.argv) > 2 else sys.exit(__doc__)

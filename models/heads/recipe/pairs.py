"""Fits which fact a correction or a wish to forget means, on what the seven writers wrote, and prints the figures.

    python pairs.py FOLDER_OF_THE_ENCODER

A candidate is the nearest fact of the writer, where each shared word counts 0.12. Its features: likeness, lead before the next, and the
logarithm of the share of the kind, by heads that did not see this writer. Each writer in turn is held out.
services/remember/src/meant.rs has the weights that are printed. Its biases differ: a wrong correction costs more than a missed one, and
a missed wish more than a wrong one.
"""

import pathlib
import re
import sys

import numpy as np
from sklearn.linear_model import LogisticRegression

from encode import Encoder
from said import HERE, KINDS
from train import fit

SAME_WORD, MOST_LEAD, MOST_FACTS = 0.12, 0.3, 40
SMALL = set(
    "the a an my our your his her its their i we you he she it they is are was were that this there not now no in on at of to and or for with from by be been "
    "have has had do does did don't it's i'm he's she's what said thing bit about stuff forget drop lose erase delete remove keep any more one".split()
)


def stems(text):
    return {word[:5] for word in re.findall(r"[a-z0-9]+", text.lower()) if word not in SMALL and len(word) >= 3}


def features(sentence, vector, share, texts, vectors):
    """Features of the nearest fact, and the fact."""
    likeness = vectors @ vector
    score = likeness + SAME_WORD * np.array([min(3, len(stems(sentence) & stems(text))) for text in texts])
    order = score.argsort()[::-1]
    first = order[0]
    second = next(at for at in order[1:] if texts[at] != texts[first])
    lead = min(score[first] - score[second], MOST_LEAD)
    return [likeness[first], lead, np.log(max(share, 0.05))], texts[first]


def main(folder):
    encoder = Encoder(pathlib.Path(folder))
    writers = [[line.split("\t") for line in file.read_text().splitlines()] for file in sorted((HERE / "written").glob("*.tsv"))]
    vectors = [encoder([line[1] for line in lines]) for lines in writers]
    kinds = [np.array([KINDS.index(line[0]) for line in lines]) for lines in writers]
    rows = {"correction": [], "forget": []}
    for at, lines in enumerate(writers):
        others = [other for other in range(len(writers)) if other != at]
        heads = fit(np.concatenate([vectors[other] for other in others]), np.concatenate([kinds[other] for other in others]))
        shares = heads.predict_proba(vectors[at])
        facts = [number for number, line in enumerate(lines) if line[0] in ("person", "home")][::4][:MOST_FACTS]
        for kind, found in rows.items():
            said = [number for number, line in enumerate(lines) if line[0] == kind]
            texts = [lines[number][2] for number in said] + [lines[number][1] for number in facts]
            those = np.concatenate([encoder([lines[number][2] for number in said]), vectors[at][facts]])
            for number in said:
                row, fact = features(lines[number][1], vectors[at][number], shares[number, KINDS.index(kind)], texts, those)
                found.append((at, row, fact == lines[number][2], False))
            # What is no correction replaces nothing; a wish whose fact is not there forgets nothing.
            for number in facts if kind == "correction" else said:
                gone = lines[number][1] if kind == "correction" else lines[number][2]
                left = [place for place, text in enumerate(texts) if text != gone]
                share = shares[number, KINDS.index(kind)]
                row, _ = features(lines[number][1], vectors[at][number], share, [texts[place] for place in left], those[left])
                # A fact that says the same again may replace it.
                if kind == "forget" or row[0] <= 0.7:
                    found.append((at, row, False, True))
    for kind, found in rows.items():
        of, x, y, absent = (np.array(column) for column in zip(*found))
        right = np.zeros(len(y))
        for at in range(len(writers)):
            model = LogisticRegression(C=10, max_iter=2000).fit(x[of != at], y[of != at])
            right[of == at] = model.predict_proba(x[of == at])[:, 1]
        model = LogisticRegression(C=10, max_iter=2000).fit(x, y)
        print(kind, "likeness, lead, share", model.coef_[0].round(2), "bias", model.intercept_[0].round(2))
        for least in (0.2, 0.4, 0.5, 0.6):
            taken = right >= least
            print(f"  {least}: right {(taken & y).sum()} of {(~absent).sum()}, wrong {(taken & ~y & ~absent).sum()}, where none is meant {(taken & absent).sum()} of {absent.sum()}")


if __name__ == "__main__":
    main(sys.argv[1]) if len(sys.argv) > 1 else sys.exit(__doc__)

"""Trains the heads on a sentence encoder, and writes them as the service reads them.

    pip install numpy scikit-learn safetensors tokenizers torch
    python train.py FOLDER_OF_THE_ENCODER NAME_OF_ITS_WEIGHTS OUT.toml [HELD_OUT.tsv ...]

The name is what the service's log tells when it opens the encoder. Every sixth template is held out first, to measure; then all
templates and all that the writers wrote train the heads that are written. Held-out files (kind, sentence) are only measured.
"""

import hashlib
import pathlib
import sys

import numpy as np
from sklearn.linear_model import LogisticRegression

from encode import Encoder
from said import KINDS, changed, lines_of, made, written

EACH = {"person": 4, "home": 4, "passing": 4, "question": 5, "order": 5, "correction": 6, "remember": 9, "forget": 6, "secret": 9}
C = 2.0  # inverse strength of the regularisation
WRITTEN = 3.0  # weight of a written sentence beside one from a template


def fit(x, y, weights=None):
    return LogisticRegression(C=C, max_iter=3000, class_weight="balanced").fit(x, y, sample_weight=weights)


def figures(name, model, x, y):
    found = model.predict(x)
    right = {kind: f"{int((found == y)[y == at].sum())}/{int((y == at).sum())}" for at, kind in enumerate(KINDS)}
    print(name, f"{(found == y).mean():.3f}", " ".join(f"{kind} {share}" for kind, share in right.items()))
    lasting = [KINDS.index(kind) for kind in ["person", "home", "correction", "remember"]]
    told = np.isin(found, lasting)
    facts, others = np.isin(y, [0, 1]), np.isin(y, [2, 3, 4])
    print(" ", f"facts kept {int(told[facts].sum())}/{int(facts.sum())}, others kept {int(told[others].sum())}/{int(others.sum())}")


def main(folder, name, out, *files):
    encoder = Encoder(pathlib.Path(folder))
    sentences = [(text, at, f"{kind} {template}") for at, kind in enumerate(KINDS) for text, template in made(kind, EACH[kind], 1)]
    x, y = encoder([text for text, _, _ in sentences]), np.array([at for _, at, _ in sentences])
    held = np.array([int(hashlib.md5(template.encode()).hexdigest(), 16) % 6 == 0 for _, _, template in sentences])
    figures("held-out templates", fit(x[~held], y[~held]), x[held], y[held])
    more, changes = written(), changed()
    weights = np.concatenate([np.ones(len(y)), np.full(len(more), WRITTEN), np.ones(len(changes))])
    more += changes
    x = np.concatenate([x, encoder([text for _, text in more])])
    model = fit(x, np.concatenate([y, [KINDS.index(kind) for kind, _ in more]]), weights)
    for file in files:
        lines = lines_of(pathlib.Path(file))
        figures(file, model, encoder([line[1] for line in lines]), np.array([KINDS.index(line[0]) for line in lines]))
    write(out, name, model)


def write(out, name, model):
    with open(out, "w") as to:
        to.write("# Heads on all-MiniLM-L6-v2, by recipe/train.py. A weight is its number times the kind's scale.\n")
        to.write(f'encoder = "{name}"\nlanguages = ["en"]\n')
        for kind, weights, bias in zip(KINDS, model.coef_, model.intercept_):
            scale = np.abs(weights).max() / 127
            rounded = np.round(weights / scale).astype(int)
            to.write(f'\n[[kinds]]\nkind = "{kind}"\nbias = {bias:.5f}\nscale = {scale:.8f}\nweights = [\n')
            for start in range(0, len(rounded), 24):
                to.write("    " + " ".join(f"{value}," for value in rounded[start : start + 24]) + "\n")
            to.write("]\n")


if __name__ == "__main__":
    main(*sys.argv[1:]) if len(sys.argv) > 3 else sys.exit(__doc__)

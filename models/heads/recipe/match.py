"""Trains the matcher, which finds the fact that a correction or a wish to forget means, on what the writers wrote, and prints the figures.

    pip install numpy scipy scikit-learn safetensors tokenizers torch
    cargo build --release -p remember --example subjects
    python match.py FOLDER_OF_THE_ENCODER PATH_OF_SUBJECTS OUT (writes OUT.match.toml, OUT.match.i8 and match.golden.tsv)

A text is its tokens' states, each projected to 32 numbers and counted by a weight of its own. How well a fact fits: the likeness of the two
vectors, of each said token to the nearest of the fact, of each of the fact's to the nearest that is said, and the words that both share. A
matcher that saw every other writer measures the others; then all writers train the one that is written. Each of the 16 facts that the
vectors bring nearest has a chance to be the one that is meant: by its likeness, its fit, its lead before the best of the others and, for a
correction, the logarithm of the share of that kind and how both differ in whom and what they are about, which `subjects` tells.
services/remember/src/meant_fact.rs has the weights of that chance that are printed.
"""

import pathlib
import re
import subprocess
import sys

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from torch.nn.functional import normalize, softplus

from encode import Encoder
from said import KINDS, english, lines_of_news, news
from train import fit
from words import WordHeads, kinds_of

RANK, ROUNDS, MOST_TOKENS, SHARPNESS = 32, 3, 28, 20
SAME_WORD, MOST_SAME_WORDS, MOST_LEAD, LONE_LEAD, LEAST_SHARE, MOST_FACTS, NEAREST = 0.12, 3, 6, 1, 0.01, 60, 16
KNOWN = [5, 10, 20, 40, 80]  # facts of which one is chosen
WISHES = ["forget", "correction"]
SMALL = set(
    "the a an my our your his her its their i we you he she it they is are was were that this there not now no in on at of to and or for with from by be been "
    "have has had do does did don't it's i'm he's she's what said thing bit about stuff forget drop lose erase delete remove keep any more one".split()
)


def stems(text):
    return {word[:5] for word in re.findall(r"[a-z0-9]+", text.lower()) if word not in SMALL and len(word) >= 3}


def same_words(said, facts):
    facts = [stems(fact) for fact in facts]
    return torch.tensor([[min(MOST_SAME_WORDS, len(stems(one) & fact)) for fact in facts] for one in said], dtype=torch.float32)


class Texts:
    def __init__(self, encoder, texts):
        self.texts = texts
        rows, vectors = encoder.tokens(texts, MOST_TOKENS)
        self.rows, self.vectors = torch.tensor(rows), torch.tensor(vectors)

    def of(self, places):
        some = object.__new__(Texts)
        some.texts = [self.texts[at] for at in places]
        some.rows, some.vectors = self.rows[places], self.vectors[places]
        return some


class Writer:
    """What one writer said, and the facts that it means, with those that no sentence of the kind means."""

    def __init__(self, encoder, lines):
        self.lines = lines
        self.said, self.meant = (Texts(encoder, [line[at] for line in lines]) for at in (1, -1))
        self.same = {}

    def pairs(self, kind):
        said = [at for at, line in enumerate(self.lines) if line[0] == kind]
        told = [at for at, line in enumerate(self.lines) if line[0] in ("person", "home")][::2]
        others = told or [at for at, line in enumerate(self.lines) if line[0] != kind]
        facts = self.meant.of(said + others[:MOST_FACTS])
        if kind not in self.same:
            self.same[kind] = same_words([self.lines[at][1] for at in said], facts.texts)
        right = torch.tensor([[self.lines[at][2] == text for text in facts.texts] for at in said])
        return self.said.of(said), facts, self.same[kind], right

    def told(self):
        """Facts as a person tells them, among the other facts: they correct none."""
        facts = self.meant.of([at for at, line in enumerate(self.lines) if line[0] in ("forget", "person", "home")][: 2 * MOST_FACTS])
        right = torch.zeros(len(facts.texts), len(facts.texts), dtype=torch.bool)
        return facts, facts, same_words(facts.texts, facts.texts), right


class News:
    """What changes a writer's facts, and what sounds alike and changes none."""

    def __init__(self, encoder, triples):
        self.lines = lines_of_news(triples)
        self.said = Texts(encoder, [line[1] for line in self.lines])
        self.facts = Texts(encoder, [triple[0] for triple in triples])

    def pairs(self, _):
        return self.said_at(0)

    def beside(self):
        return self.said_at(1)

    def said_at(self, at):
        said = self.said.of(list(range(at, len(self.lines), 2)))
        return said, self.facts, same_words(said.texts, self.facts.texts), torch.eye(len(said.texts), dtype=torch.bool)


class Matcher(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.project = torch.nn.Linear(width, RANK, bias=False)
        self.counts = torch.nn.ModuleDict({side: torch.nn.Linear(width, 1) for side in ["fact", *WISHES]})
        for counts in self.counts.values():
            torch.nn.init.zeros_(counts.weight)
            torch.nn.init.zeros_(counts.bias)
        self.weights = torch.nn.ParameterDict({kind: torch.nn.Parameter(torch.tensor([8.0, 6.0, 6.0, 1.0])) for kind in WISHES})

    def tokens(self, rows, side):
        there = rows.abs().sum(-1) > 0
        counts = softplus(self.counts[side](rows) * SHARPNESS).squeeze(-1) * there
        return normalize(self.project(rows), dim=-1), counts / counts.sum(1, keepdim=True), there

    def features(self, said, facts, same, kind):
        (said_rows, said_counts, said_there), (rows, counts, there) = self.tokens(said.rows, kind), self.tokens(facts.rows, "fact")
        near = torch.einsum("qir,fjr->qfij", said_rows, rows)
        near = near.masked_fill(~said_there[:, None, :, None], -1).masked_fill(~there[None, :, None, :], -1)
        ways = (near.max(3).values * said_counts[:, None]).sum(2), (near.max(2).values * counts[None]).sum(2)
        return torch.stack([said.vectors @ facts.vectors.T, *ways, same], -1)

    def forward(self, said, facts, same, kind):
        return self.features(said, facts, same, kind) @ self.weights[kind]


def train(writers, told_anew):
    torch.manual_seed(0)
    draw = np.random.default_rng(0)
    groups = [(kind, *writer.pairs(kind)) for kind in WISHES for writer in writers]
    groups += [("correction", *writer.pairs("correction")) for writer in told_anew]
    matcher = Matcher(groups[0][1].vectors.shape[1])
    rates = [(matcher.project, 2e-3), (matcher.counts, 5e-3), (matcher.weights, 5e-2)]
    steps = torch.optim.AdamW([{"params": part.parameters(), "lr": rate} for part, rate in rates], weight_decay=0.1)
    for at in np.concatenate([draw.permutation(len(groups)) for _ in range(ROUNDS)]):
        kind, said, facts, same, right = groups[at]
        for part in np.array_split(draw.permutation(len(right)), max(1, len(right) // 50)):
            some = np.union1d(draw.permutation(len(facts.texts))[:140], right[part].nonzero()[:, 1].unique().numpy())
            scores = matcher(said.of(part), facts.of(some), same[part][:, some], kind)
            those = right[part][:, some]
            loss = (torch.logsumexp(scores, 1) - torch.logsumexp(scores.masked_fill(~those, -1e9), 1)).mean()
            steps.zero_grad()
            loss.backward()
            steps.step()
    return matcher


def candidates(matcher, kind, subjects, draw, said, facts, same, right, shares, what):
    """Yields for each sentence what the chance of each of its nearest facts is computed from, and which is right: with the right fact among
    the others; with it `absent`; or where none is, though one sounds alike."""
    with torch.no_grad():
        parts = [range(at, min(at + 40, len(right))) for at in range(0, len(right), 40)]
        features = torch.cat([matcher.features(said.of(part), facts, same[part], kind) for part in map(list, parts)]).numpy()
    scores, near, right = features @ matcher.weights[kind].detach().numpy(), features[..., 0] + SAME_WORD * features[..., 3], right.numpy()
    nearest = []
    for at, those in enumerate(right):
        # A home knows few facts at first.
        known = (draw.random(len(those)) < draw.choice(KNOWN) / len(those)) | those
        known &= np.array([text != said.texts[at] for text in facts.texts]) & ~(those & (what == "absent"))
        nearest.append([place for place in near[at].argsort()[::-1] if known[place]][:NEAREST])
    pairs = [(said.texts[at], facts.texts[place]) for at, some in enumerate(nearest) for place in some]
    differs = differences(subjects, pairs) if kind == "correction" else np.zeros((len(pairs), 0))
    done = 0
    for at, some in enumerate(nearest):
        if not some:
            continue
        mine, fits = differs[done : done + len(some)], scores[at, some]
        done += len(some)
        others = [fits[[facts.texts[other] != facts.texts[place] for other in some]] for place in some]
        leads = [np.clip(fit - other.max(), -MOST_LEAD, MOST_LEAD) if len(other) else LONE_LEAD for fit, other in zip(fits, others)]
        rest = [np.full(len(some), shares[at])] if kind == "correction" else []
        yield np.column_stack([features[at, some, 0], fits, leads, *rest, mine]), right[at][some] & (what == "there"), what


def differences(subjects, pairs):
    lines = "".join(f"{newer}\t{older}\n" for newer, older in pairs)
    bits = subprocess.run([subjects], input=lines, capture_output=True, text=True, check=True).stdout.split()
    return np.array([[int(bit) for bit in line] for line in bits], np.float32)


def rounded(part):
    scale = float(np.abs(part).max()) / 127
    return scale, np.round(part / scale).astype(np.int8)


def example(seed, width, tokens=5):
    """States of tokens that Rust makes alike."""
    at = np.arange(width)
    return np.stack([np.sin((at * 7 + seed * 13 + token * at) * 0.37) for token in range(tokens)]).astype(np.float32)


def write(matcher, out):
    width = matcher.project.in_features
    parts = {"project": matcher.project.weight.detach().numpy()}
    parts |= {side: counts.weight.detach().numpy() * SHARPNESS for side, counts in matcher.counts.items()}
    scales = {}
    with open(f"{out}.match.i8", "wb") as to:
        for name, part in parts.items():
            scales[name], small = rounded(part)
            to.write(small.tobytes())
            target = matcher.project if name == "project" else matcher.counts[name]
            target.weight.data = torch.tensor(small.astype(np.float32) * scales[name] / (1 if name == "project" else SHARPNESS))
    said, facts = (object.__new__(Texts) for _ in range(2))
    for texts, seed in ((said, 1), (facts, 2)):
        states = example(seed, width)
        texts.rows = normalize(torch.tensor(states), dim=-1)[None]
        texts.vectors = normalize(torch.tensor(states).mean(0), dim=-1)[None]
    with open(f"{out}.match.toml", "w") as to:
        to.write("# A matcher of sentences with the facts that they mean, by recipe/match.py. The .i8 has the projection of tokens to `rank` numbers,\n")
        to.write("# and what a token counts in a fact, a wish to forget and a correction: a byte each, times a scale. `weights` are those of the\n")
        to.write("# likeness of the vectors, of what is said, of the fact, and of a shared word.\n")
        to.write(f"rank = {RANK}\nproject = {scales['project']:.8f}\n")
        for side, counts in matcher.counts.items():
            weights = ", ".join(f"{weight:.4f}" for weight in (matcher.weights[side].tolist() if side in WISHES else []))
            to.write(f"\n[{side}]\nscale = {scales[side]:.8f}\nbias = {counts.bias.item() * SHARPNESS:.6f}\nweights = [{weights}]\n")
    with open(pathlib.Path(out).parent / "match.golden.tsv", "w") as to:
        for kind in WISHES:
            with torch.no_grad():
                to.write(f"{kind}\t{matcher(said, facts, torch.tensor([[2.0]]), kind).item():.5f}\n")


def found(chances, rows, least):
    """Counts sentences whose likeliest fact has at least this chance, and is right or not."""
    counts = {}
    for chance, (_, right, what) in zip(chances, rows):
        best = chance.argmax()
        if chance[best] >= least:
            counts[what, bool(right[best])] = counts.get((what, bool(right[best])), 0) + 1
    return counts


def main(folder, subjects, out):
    encoder = Encoder(pathlib.Path(folder))
    writers = [Writer(encoder, lines) for lines in english()]
    told_anew = [News(encoder, triples) for triples in news()]
    rows = {kind: [] for kind in WISHES}
    for half in (0, 1):
        seen, held = writers[1 - half :: 2], writers[half::2]
        seen_news, held_news = told_anew[1 - half :: 2], told_anew[half::2]
        lines = [line for writer in [*seen, *seen_news] for line in writer.lines]
        heads = fit(np.concatenate([writer.said.vectors for writer in [*seen, *seen_news]]), kinds_of(lines))
        words = WordHeads(lines)
        matcher = train(seen, seen_news)
        draw = np.random.default_rng(1)

        def of_kind(said, kind):
            shares = heads.predict_proba(said.vectors.numpy()) * words(said.texts)
            return np.log(np.maximum(shares[:, KINDS.index(kind)] / shares.sum(1), LEAST_SHARE))

        def measure(kind, pairs, what):
            rows[kind] += [(half, row) for row in candidates(matcher, kind, subjects, draw, *pairs, of_kind(pairs[0], kind), what)]

        for writer in held:
            for kind in WISHES:
                for what in ("there", "absent"):
                    measure(kind, writer.pairs(kind), what)
            measure("correction", writer.told(), "told")
        for writer in held_news:
            measure("correction", writer.pairs("correction"), "there")
            measure("correction", writer.beside(), "beside")
    for kind, halves in rows.items():
        chances, those = [], []
        for half in (0, 1):
            seen = [row for of, row in halves if of != half]
            model = LogisticRegression(C=3, max_iter=3000).fit(np.concatenate([row[0] for row in seen]), np.concatenate([row[1] for row in seen]))
            held = [row for of, row in halves if of == half]
            chances += [model.predict_proba(row[0])[:, 1] for row in held]
            those += held
        all_rows = [row for _, row in halves]
        model = LogisticRegression(C=3, max_iter=3000).fit(np.concatenate([row[0] for row in all_rows]), np.concatenate([row[1] for row in all_rows]))
        print(kind, "likeness, fit, lead, share, differences", model.coef_[0].round(2), "bias", model.intercept_[0].round(2))
        print(" ", {what: sum(row[2] == what for row in those) for what in ("there", "absent", "told", "beside")})
        for least in (0.1, 0.15, 0.2, 0.25, 0.3, 0.4):
            print(f"  {least}:", ", ".join(f"{what} {'right' if right else 'wrong'} {n}" for (what, right), n in sorted(found(chances, those, least).items())))
    write(train(writers, told_anew), out)


if __name__ == "__main__":
    main(*sys.argv[1:]) if len(sys.argv) > 3 else sys.exit(__doc__)

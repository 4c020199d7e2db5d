"""The tokenizer in plain Python, for the plain ASCII that the conversations are made of, so that training needs nothing but
PyTorch. check_render.py holds it to the library."""
import json, pathlib, re

HERE = pathlib.Path(__file__).parent
SPLIT = re.compile(r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\nA-Za-z0-9]?[A-Za-z]+|[0-9]| ?[^\sA-Za-z0-9]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


class Tokenizer:
    def __init__(self, file=HERE / "tokenizer.json"):
        saved = json.loads(pathlib.Path(file).read_text())
        self.ids = saved["model"]["vocab"]
        merges = [m.split(" ") if isinstance(m, str) else m for m in saved["model"]["merges"]]
        self.rank = {tuple(m): i for i, m in enumerate(merges)}
        self.control = {t["content"]: t["id"] for t in saved["added_tokens"]}
        self.between = re.compile("(" + "|".join(re.escape(c) for c in self.control) + ")")
        self.known = {}

    def word(self, text):
        """[(id, characters)] of one word."""
        if text not in self.known:
            parts = ["Ġ" if c == " " else "Ċ" if c == "\n" else c for c in text]
            while len(parts) > 1:
                best = min(range(len(parts) - 1), key=lambda i: self.rank.get((parts[i], parts[i + 1]), 1 << 30))
                if (parts[best], parts[best + 1]) not in self.rank:
                    break
                parts[best:best + 2] = [parts[best] + parts[best + 1]]
            self.known[text] = [(self.ids[p], len(p)) for p in parts]
        return self.known[text]

    def encode(self, text):
        """Tokens, and where each ends in the text."""
        assert text.isascii(), "only plain ASCII"
        ids, ends, at = [], [], 0
        for piece in self.between.split(text):
            if piece in self.control:
                at += len(piece)
                ids.append(self.control[piece])
                ends.append(at)
                continue
            for match in SPLIT.finditer(piece):
                for token, length in self.word(match.group()):
                    at += length
                    ids.append(token)
                    ends.append(at)
        return ids, ends

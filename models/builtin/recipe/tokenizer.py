"""Trains the tokenizer on the synthetic conversations: the family's splitting and control tokens, 2,048 tokens in all.

    python tokenizer.py OUT.json
"""
import random, sys
from tokenizers import Tokenizer, Regex, models, pre_tokenizers, decoders, trainers
import bpe, mix, render
from model import CONFIG

SPLIT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]


def texts(count):
    rng = random.Random(11)
    for n in range(count):
        home = mix.conversation(rng, rng.random())
        text = "".join(p for p, _ in render.segments(home.messages, home.tools, rng, rng.random() < 0.3))
        for control in CONTROL:
            text = text.replace(control, "\x00")
        yield from text.split("\x00")


if __name__ == "__main__":
    tok = Tokenizer(models.BPE(byte_fallback=False))
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.decoder = decoders.ByteLevel()
    tok.train_from_iterator(texts(6000), trainers.BpeTrainer(
        vocab_size=CONFIG["vocab_size"] - len(CONTROL), show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tok.add_special_tokens(CONTROL)
    assert tok.get_vocab_size() == CONFIG["vocab_size"], tok.get_vocab_size()
    tok.save(sys.argv[1])
    rng, tokens, learned = random.Random(12), 0, 0
    for n in range(300):
        home = mix.conversation(rng, 1.0)
        ids, weights = render.encode(bpe.Tokenizer(sys.argv[1]), render.segments(home.messages, home.tools, rng))
        tokens, learned = tokens + len(ids), learned + sum(w > 0 for w in weights)
    print("tokens of a conversation", tokens / 300, "of them learned", learned / tokens)
    print([tok.encode(t).tokens for t in ("Your dog is called Rufo.", "My door code is 4821.", "Hannah", "# Tools\n\nYou have access to the following functions:\n")])

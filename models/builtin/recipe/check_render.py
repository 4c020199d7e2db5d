"""Holds render.py to the chat template, with the reference implementation's Jinja, and bpe.py to the library's tokenizer."""
import json, random, jinja2, tokenizers
import bpe, mix, render

env = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
env.filters["tojson"] = lambda v: json.dumps(v, ensure_ascii=False)
template = env.from_string(render.REST.read_text())
plain, library = bpe.Tokenizer(), tokenizers.Tokenizer.from_file(str(bpe.HERE / "tokenizer.json"))
rng = random.Random(5)
for n in range(400):
    home = mix.conversation(rng, 1.0)
    ours = "".join(p for p, _ in render.segments(home.messages, home.tools))
    theirs = template.render(messages=home.messages, tools=home.tools)
    assert ours == theirs, f"{ours}\n=======\n{theirs}"
    (ids, ends), other = plain.encode(ours), library.encode(ours)
    assert ids == other.ids and ends == [end for _, end in other.offsets]
print("400 conversations render and tokenise alike")

"""Holds render.py to the chat template, with the reference implementation's Jinja."""
import json, random, jinja2
import mix, render, talk

env = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
env.filters["tojson"] = lambda v: json.dumps(v, ensure_ascii=False)
template = env.from_string(render.REST.read_text())
rng = random.Random(5)
for n in range(400):
    home = mix.conversation(rng, 1.0)
    ours = "".join(p for p, _ in render.segments(home.messages, home.tools))
    theirs = template.render(messages=home.messages, tools=home.tools)
    assert ours == theirs, f"{ours}\n=======\n{theirs}"
print("400 conversations render alike")

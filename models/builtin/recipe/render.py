"""From messages to the text of the family's chat template (check_render.py holds it to the template itself) and to tokens with
the weight that each has in the loss."""
import json, pathlib, re

HEAD = "# Tools\n\nYou have access to the following functions:\n\n<tools>"
REST = pathlib.Path(__file__).resolve().parents[3] / "tests" / "data" / "reference" / "chat_template.jinja"


def tools_text(cache={}):
    """The words that the template puts around tools, taken from the template."""
    if not cache:
        source = REST.read_text()
        begin = source.index("\\n\\nIf you choose to call")
        cache["tail"] = source[begin:source.index("</IMPORTANT>", begin)].replace("\\n", "\n") + "</IMPORTANT>"
    return cache["tail"]


def segments(messages, tools, rng=None, think=False):
    """[(text, weight)]. With `rng`, answers that are history are sometimes shown as they are generated, with their (empty) think
    block, so that one conversation teaches all its answers; without, as the template has it."""
    out, messages = [], list(messages)
    system = messages.pop(0)["content"].strip() if messages and messages[0]["role"] == "system" else None
    if tools:
        text = "<|im_start|>system\n" + HEAD + "".join("\n" + json.dumps(t, ensure_ascii=False) for t in tools) + "\n</tools>" + tools_text()
        out.append((text + ("\n\n" + system if system else "") + "<|im_end|>\n", 0.0))
    elif system is not None:
        out.append(("<|im_start|>system\n" + system + "<|im_end|>\n", 0.0))
    last_query = max([i for i, m in enumerate(messages) if m["role"] == "user"], default=-1)
    for i, m in enumerate(messages):
        if m["role"] == "user":
            out.append(("<|im_start|>user\n" + m["content"].strip() + "<|im_end|>\n", 0.0))
        elif m["role"] == "tool":
            before = messages[i - 1]["role"] if i else "system"
            after = messages[i + 1]["role"] if i + 1 < len(messages) else None
            out.append((("<|im_start|>user" if before != "tool" else "") + "\n<tool_response>\n" + m["content"].strip() + "\n</tool_response>" + ("<|im_end|>\n" if after != "tool" else ""), 0.0))
        else:
            weight = m.get("learn", 0.0)
            out.append(("<|im_start|>assistant\n", 0.0))
            shown = i > last_query or (rng is not None and rng.random() < 0.35)
            if shown and think and (i > last_query or rng.random() < 0.5):
                out += [("<think>\n", 0.0), (m.get("thought", "") + "\n</think>\n\n", weight)]
            elif shown:
                out.append(("<think>\n\n</think>\n\n", 0.0))
            text = m["content"].strip()
            for n, call in enumerate(m.get("tool_calls", [])):
                text += ("\n\n" if text and n == 0 else "\n" if n else "") + "<tool_call>\n<function=" + call["name"] + ">\n"
                text += "".join(f"<parameter={k}>\n{v}\n</parameter>\n" for k, v in call["arguments"].items()) + "</function>\n</tool_call>"
            if "only" in m:
                at = text.rindex(m["only"])
                begin = at - (text[at - 1] == " ")
                out += [(text[:begin], 0.0), (m["only"] if begin == at else " " + m["only"], weight), (text[at + len(m["only"]):] + "<|im_end|>\n", 0.0)]
            else:
                out += [*weighted(text, m.get("value"), m.get("marks", []), weight), ("<|im_end|>", weight), ("\n", 0.0)]
    return out


def weighted(text, value, marks, weight):
    """The first word decides what the answer is (known or not, a call or words), the value what it is worth; so do other words
    that have to be carried over exactly (`marks`)."""
    if not weight:
        return [(text, weight)]
    first = len(text) - len(text.lstrip("<")) + len(re.match(r"<*[A-Za-z_#]*", text).group().lstrip("<"))
    each = [3 * weight] * first + [weight] * (len(text) - first)
    for mark in [*([value] if isinstance(value, str) and value != text else []), *marks]:
        if (at := text.find(mark, first)) > 0:
            begin = at - (text[at - 1] == " ")
            each[begin:at + len(mark)] = [2 * weight] * (at + len(mark) - begin)
    cuts = [at for at in range(len(text)) if at == 0 or each[at] != each[at - 1]]
    return [(text[a:b], each[a]) for a, b in zip(cuts, [*cuts[1:], len(text)])]


def encode(tokenizer, parts):
    """Tokens and weights; a token that straddles parts takes the weight of its last character."""
    text = "".join(p for p, _ in parts)
    ids, ends = tokenizer.encode(text)
    bounds, at = [], 0
    for p, w in parts:
        at += len(p)
        bounds.append((at, w))
    weights, part = [], 0
    for end in ends:
        while bounds[part][0] < end:
            part += 1
        weights.append(bounds[part][1])
    return ids, weights

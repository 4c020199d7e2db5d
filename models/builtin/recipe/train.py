"""Trains the built-in model. Stops and goes on at any time: everything is in the checkpoint.

    python train.py --work FOLDER --steps 4000 --tokens 3072 --ranks 2                          # two cores, two hours or so
    python train.py --work FOLDER --steps 6000 --tokens 32768 --device cuda --workers 12        # a GPU, 20 minutes or so

A file FOLDER/cooldown with a number in it lets the learning rate fall to its end over so many steps, from the first step that
found the file; the number may be changed while it falls, where the time that is left turns out to be another.
"""
import os
os.environ.setdefault("OMP_WAIT_POLICY", "passive")            # other programs compile on the same cores
os.environ.setdefault("GOMP_SPINCOUNT", "0")
import argparse, collections, json, pathlib, random, time
import torch
import torch.distributed as dist
import mix, render
from bpe import Tokenizer
from model import CONFIG, Model, initialise
from optim import Optimizer

HERE = pathlib.Path(__file__).parent
PAD = 0


def samples(rng, tokenizer, count, progress, longest):
    out = []
    while len(out) < count:
        long = rng.choice([0, 0, 2000, 4500, 7000]) if progress > 0.55 else 0
        home = mix.conversation(rng, progress, long)
        think = rng.random() < 0.12 and progress > 0.25
        ids, weights = render.encode(tokenizer, render.segments(home.messages, home.tools, rng, think))
        if len(ids) <= longest:
            out.append((ids, weights))
    return out


def pairs(rng, tokens, vocab):
    """Associative recall with random tokens: keys with values of one to four tokens, then the keys again. It teaches in a few
    hundred steps what conversations teach slowly: to find what followed something, and to copy it to its end."""
    width = rng.choice([128, 192, 256])
    ids, weights = torch.zeros(tokens // width, width, dtype=torch.long), torch.zeros(tokens // width, width)
    for row in range(len(ids)):
        known, line, weight = {}, [], []
        separator = rng.randrange(vocab)
        while len(line) < width:
            if known and (len(known) > 14 or rng.random() < 0.6):
                key = rng.choice(list(known))
                part = [0.0] * (len(key) + 1) + [1.0] * len(known[key])
            else:
                key = tuple(rng.randrange(vocab) for _ in range(rng.choice([1, 1, 2])))
                known[key] = [rng.randrange(vocab) for _ in range(rng.choice([1, 2, 3, 4]))]
                part = [0.0] * (len(key) + 1 + len(known[key]))
            line += [*key, separator, *known[key]]
            weight += part
        ids[row], weights[row] = torch.tensor(line[:width]), torch.tensor(weight[:width])
    return ids, weights


def batches(rng, tokenizer, progress, tokens, longest):
    """A pool of conversations, cut into batches of like length, in random order."""
    pool = sorted(samples(rng, tokenizer, max(48, tokens // 40), progress, longest), key=lambda s: len(s[0]))
    out, now = [], []
    for sample in pool:
        if now and (len(now) + 1) * len(sample[0]) > tokens:
            out.append(now)
            now = []
        now.append(sample)
    out.append(now)
    rng.shuffle(out)
    for batch in out:
        if rng.random() < (0.35 if progress < 0.22 else 0.08 if progress < 0.5 else 0):
            yield pairs(rng, tokens, CONFIG["vocab_size"])
        width = max(len(ids) for ids, _ in batch)
        ids, weights = torch.full((len(batch), width), PAD), torch.zeros(len(batch), width)
        for row, (i, w) in enumerate(batch):
            ids[row, :len(i)], weights[row, :len(w)] = torch.tensor(i), torch.tensor(w)
        yield ids, weights


def forever(rng, tokenizer, args, progress):
    while True:
        yield from batches(rng, tokenizer, progress(), args.tokens, args.longest)


def work(seed, args, shared, queue):
    torch.set_num_threads(1)
    for batch in forever(random.Random(seed), Tokenizer(), args, lambda: shared.value):
        queue.put(batch)


def from_workers(args, rank, step, progress):
    """Batches of several processes: a GPU reads faster than one process talks."""
    context = torch.multiprocessing.get_context("spawn")
    shared, queue = context.Value("d", progress()), context.Queue(args.workers * 4)
    for number in range(args.workers):
        seed = f"{args.seed} {step} {rank} {number}"
        context.Process(target=work, args=(seed, args, shared, queue), daemon=True).start()
    while True:
        shared.value = progress()
        yield queue.get()


@torch.no_grad()
def held_out(model, tokenizer, device, progress, count=50):
    """Share of answers (of a summary's lines) that would be said exactly right, by what they test, on wordings and values never
    trained on, where all before was right."""
    rng = random.Random(77)
    rng.held = True
    line_ends = {i for text, i in tokenizer.ids.items() if "Ċ" in text}
    right, asked = collections.Counter(), collections.Counter()
    for _ in range(count):
        home = mix.conversation(rng, progress, 3000 if progress > 0.55 else 0)
        answers = [m for m in home.messages if m.get("learn")]
        parts = render.segments(home.messages, home.tools)
        ids, weights = render.encode(tokenizer, parts)
        tokens = torch.tensor([ids], device=device)
        hits = (model(tokens)[0, :-1].argmax(-1) == tokens[0, 1:]).tolist()
        answer, good, inside = -1, True, False
        for at in range(1, len(ids)):
            if weights[at] > 0:
                if not inside:
                    answer, good, inside = answer + 1, True, True
                elif ids[at - 1] in line_ends and answers[answer]["tests"] == "summary":    # a summary is counted line by line
                    asked["summary"] += 1
                    right["summary"] += good
                    good = True
                good &= hits[at - 1]
            if inside and (weights[at] == 0 or at == len(ids) - 1):
                inside = False
                asked[answers[answer]["tests"]] += 1
                right[answers[answer]["tests"]] += good
    return {k: round(right[k] / asked[k], 3) for k in sorted(asked)}


@torch.no_grad()
def add_up(model, ranks):
    """The mean of all processes' gradients, in each."""
    grads = [p.grad for p in model.parameters()]
    flat = torch.cat([g.flatten() for g in grads])
    dist.all_reduce(flat)
    for grad, part in zip(grads, flat.div_(ranks).split([g.numel() for g in grads])):
        grad.copy_(part.view_as(grad))


def grown(model, weights):
    """The weights of a model with fewer layers, for one with more: the new ones stand before the last two and begin as nothing
    (what they add is zero), so that all that was learned stays."""
    layer = lambda name: int(name.split(".")[2])
    had = 1 + max(layer(n) for n in weights if n.startswith("model.layers."))
    new = len(model.model.layers) - had
    out = model.state_dict()
    for name, value in weights.items():
        if name.startswith("model.layers.") and layer(name) >= had - 2:
            name = name.replace(f".{layer(name)}.", f".{layer(name) + new}.", 1)
        out[name] = value
    for name in out:
        if name.startswith("model.layers.") and had - 2 <= layer(name) < had - 2 + new and name.endswith(("out_proj.weight", "o_proj.weight", "down_proj.weight")):
            out[name] = torch.zeros_like(out[name])
    return out


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--work", type=pathlib.Path, required=True)
    ap.add_argument("--steps", type=int, default=4000)
    ap.add_argument("--tokens", type=int, default=4096)
    ap.add_argument("--longest", type=int, default=2900)
    ap.add_argument("--rate", type=float, default=3e-3)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--device", default="cpu")
    ap.add_argument("--threads", type=int, default=1, help="of each process")
    ap.add_argument("--ranks", type=int, default=1, help="processes that share a step: two of one thread are faster than one of two")
    ap.add_argument("--workers", type=int, default=0, help="processes that make conversations; 0: this one, which repeats exactly")
    ap.add_argument("--port", type=int, default=29511, help="where the processes meet")
    ap.add_argument("--look", type=int, default=100, help="steps between two looks at what is held out")
    ap.add_argument("--save", type=int, default=25, help="steps between two checkpoints")
    ap.add_argument("--begin", type=pathlib.Path, help="weights to start from, with a new optimiser")
    ap.add_argument("--until", type=int, help="stop at this step, to go on later")
    ap.add_argument("--progress", type=float, help="hold the curriculum at this place")
    args = ap.parse_args()
    if args.ranks == 1:
        return train(0, args)
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(args.port)
    torch.multiprocessing.spawn(train, (args,), args.ranks)


def train(rank, args):
    if args.ranks > 1:
        dist.init_process_group("gloo", rank=rank, world_size=args.ranks)
    torch.set_num_threads(args.threads)
    args.work.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer()
    model = Model()
    initialise(model, args.seed)
    if args.begin:
        model.load_state_dict(grown(model, torch.load(args.begin, weights_only=False)["model"]))
    model.to(args.device)
    optimizer, rng = Optimizer(model), random.Random(args.seed)
    state = {"step": 0, "tokens": 0, "seconds": 0.0, "fall": None}
    checkpoint = args.work / "checkpoint.pt"
    if checkpoint.exists():
        saved = torch.load(checkpoint, map_location=args.device, weights_only=False)
        model.load_state_dict(saved["model"])
        optimizer.load(saved["optimizer"])
        state, rng = saved["state"], saved["rng"]
        args.steps = sum(state["fall"]) if state["fall"] else args.steps
    if rank > 0:
        rng = random.Random(f"{args.seed} {state['step']} {rank}")
    log = open(args.work / "log.jsonl", "a")
    smooth, began = None, time.time()
    bf16 = args.device != "cpu"                                 # on CPUs without matrix units f32 is the faster one
    progress = lambda: args.progress if args.progress is not None else state["step"] / args.steps
    source = from_workers(args, rank, state["step"], progress) if args.workers else forever(rng, tokenizer, args, progress)
    for ids, weights in source:
        if rank == 0 and (args.work / "cooldown").exists():
            begin = state["fall"][0] if state["fall"] else state["step"]
            state["fall"] = (begin, int((args.work / "cooldown").read_text()))
            args.steps = sum(state["fall"])
        rate = args.rate * min(1.0, (state["step"] + 1) / 40)
        begin, length = state["fall"] or (int(args.steps * 0.7), args.steps - int(args.steps * 0.7))
        rate *= min(1.0, max(0.03, 1 - (state["step"] - begin) / length))
        if args.ranks > 1:
            shared = torch.tensor([rate, args.steps], dtype=torch.float64)
            dist.broadcast(shared, 0)
            rate, args.steps = shared[0].item(), int(shared[1])
        ids, weights = ids.to(args.device), weights.to(args.device)
        with torch.autocast(args.device, dtype=torch.bfloat16, enabled=bf16):
            loss, right = model.loss(ids, weights)
        for p in model.parameters():
            p.grad = None
        loss.backward()
        if args.ranks > 1:
            add_up(model, args.ranks)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step(rate, rate)
        state["step"] += 1
        state["tokens"] += ids.numel() * args.ranks
        smooth = loss.item() if smooth is None else 0.95 * smooth + 0.05 * loss.item()
        if state["step"] % 20 == 0 and rank == 0:
            state["seconds"] += time.time() - began
            began = time.time()
            line = {**state, "loss": round(smooth, 4), "right": round(right.float().mean().item(), 3), "rate": rate, "norm": round(float(norm), 3)}
            if state["step"] % args.look == 0:
                line["held_out"] = held_out(model, tokenizer, args.device, progress())
            print(json.dumps(line), file=log, flush=True)
        if rank == 0 and (state["step"] % args.save == 0 or state["step"] in (args.steps, args.until)):
            saved = {"model": model.state_dict(), "optimizer": optimizer.state(), "state": state, "rng": rng}
            torch.save(saved, checkpoint.with_suffix(".new"))
            checkpoint.with_suffix(".new").rename(checkpoint)
        if state["step"] >= min(args.steps, args.until or args.steps):
            return


if __name__ == "__main__":
    main()

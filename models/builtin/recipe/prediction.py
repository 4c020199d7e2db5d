"""Trains the block for multi-token prediction beside the model as it stands in a GGUF, whose own tensors stay byte for byte.
Stops and goes on at any time: everything is in the checkpoint.

    python prediction.py ../builtin.gguf FOLDER --steps 1500        # one core, 40 minutes or so
    python prediction.py ../builtin.gguf FOLDER --steps 0           # writes FOLDER/builtin.gguf from what was trained
"""
import argparse, json, pathlib, random, time
import gguf, numpy as np, torch
import torch.nn as nn
import torch.nn.functional as F
from bpe import Tokenizer
from export import NAMES
from model import CONFIG, Block, Model, Norm
from train import batches

WIDTH, TRUNK = CONFIG["hidden_size"], CONFIG["num_hidden_layers"]
OWN = {"eh_proj": "fc.weight", "enorm": "of_token.weight", "hnorm": "of_output.weight", "shared_head_norm": "norm.weight"}


def model_of(reader):
    """The model as the file has it, rounded as the file is."""
    file = {t.name: torch.from_numpy(np.array(gguf.quants.dequantize(t.data, t.tensor_type))) for t in reader.tensors}
    model, weights = Model().eval(), {}
    for name, own in model.state_dict().items():
        if name == "model.embed_tokens.weight":
            value = file["token_embd.weight"]
        elif name == "model.norm.weight":
            value = file["output_norm.weight"] - 1
        else:
            _, _, layer, rest = name.split(".", 3)
            value = file[f"blk.{layer}.{NAMES[rest]}"]
            if rest.endswith(("layernorm.weight", "q_norm.weight", "k_norm.weight")):
                value = value - 1
            elif rest.endswith("A_log"):
                value = (-value).log()
        weights[name] = value.float().reshape(own.shape)
    model.load_state_dict(weights)
    return model


class Prediction(nn.Module):
    """From a token and the model's output before it: the output behind the token, as far as one block can guess it."""

    def __init__(self):
        super().__init__()
        norm = lambda: Norm(WIDTH, CONFIG["rms_norm_eps"])
        self.fc, self.of_token, self.of_output, self.norm = nn.Linear(2 * WIDTH, WIDTH, bias=False), norm(), norm(), norm()
        self.block = Block(CONFIG, "full_attention")

    def forward(self, embedded, before, rotation):
        x = self.fc(torch.cat([self.of_token(embedded), self.of_output(before)], -1))
        return self.norm(self.block(x, rotation))


def initialise(prediction, seed):
    gen = torch.Generator().manual_seed(seed)
    for name, p in prediction.named_parameters():
        if p.ndim == 2:
            p.data.normal_(0, p.shape[-1] ** -0.5, generator=gen)
    for name in ("self_attn.o_proj", "mlp.down_proj"):
        prediction.block.get_submodule(name).weight.data.mul_(0.2)


def states(model, tokens):
    """The model's outputs for a batch, the outputs before each token, and what turns queries and keys."""
    with torch.no_grad():
        outputs = model.hidden(tokens)
    angles = torch.arange(tokens.shape[1]).float()[:, None] * model.frequencies
    angles = torch.cat([angles, angles], -1)[:, None]
    return outputs, F.pad(outputs[:, :-1], (0, 0, 1, 0)), (angles.cos(), angles.sin())


def loss(model, prediction, tokens, weights):
    """How far the guess is from what the model itself holds likely, where it speaks; and how often both choose the same."""
    head = model.model.embed_tokens.weight
    outputs, before, rotation = states(model, tokens)
    guessed = prediction(F.embedding(tokens, head), before, rotation)
    where = F.pad(weights[:, 1:], (0, 1)).flatten().nonzero()[:, 0]
    of_model, of_guess = (x.flatten(0, 1)[where] @ head.T for x in (outputs, guessed))
    each = -(of_model.softmax(-1) * of_guess.log_softmax(-1)).sum(-1)
    return each.mean(), of_model.argmax(-1) == of_guess.argmax(-1)


def write(source, prediction, path):
    """The file with one block more. What it held is copied as it is."""
    arch = "qwen35"
    writer = gguf.GGUFWriter(str(path), arch)
    left_out = {"GGUF.version", "GGUF.tensor_count", "GGUF.kv_count", "general.architecture", f"{arch}.nextn_predict_layers"}
    for field in source.fields.values():
        if field.name in left_out:
            continue
        kind, value = field.types[0], field.contents()
        of_items = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        if field.name == f"{arch}.block_count":
            value = TRUNK + 1
        writer.add_key_value(field.name, value, kind, of_items)
    writer.add_uint32(f"{arch}.nextn_predict_layers", 1)
    for tensor in source.tensors:
        if not tensor.name.startswith(f"blk.{TRUNK}."):
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    weights = prediction.state_dict()
    named = {f"nextn.{name}.weight": weights[own] for name, own in OWN.items()}
    named |= {NAMES[name.removeprefix("block.")]: value for name, value in weights.items() if name.startswith("block.")}
    for name, value in named.items():
        value = (value if value.ndim == 2 else value + 1).float().contiguous().numpy()
        if value.ndim == 2:
            kind = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(f"blk.{TRUNK}.{name}", gguf.quants.quantize(value, kind), raw_dtype=kind)
        else:
            writer.add_tensor(f"blk.{TRUNK}.{name}", value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("source", type=pathlib.Path)
    ap.add_argument("work", type=pathlib.Path)
    ap.add_argument("--steps", type=int, default=1500)
    ap.add_argument("--tokens", type=int, default=3072)
    ap.add_argument("--rate", type=float, default=3e-3)
    ap.add_argument("--seed", type=int, default=1)
    args = ap.parse_args()
    torch.set_num_threads(1)
    args.work.mkdir(parents=True, exist_ok=True)
    source, checkpoint = gguf.GGUFReader(str(args.source)), args.work / "prediction.pt"
    model, prediction = model_of(source), Prediction()
    initialise(prediction, args.seed)
    optimizer = torch.optim.AdamW(prediction.parameters(), betas=(0.9, 0.97), weight_decay=0.02)
    step = 0
    if checkpoint.exists():
        saved = torch.load(checkpoint, weights_only=False)
        prediction.load_state_dict(saved["prediction"])
        optimizer.load_state_dict(saved["optimizer"])
        step = saved["step"]
    rng, tokenizer, log = random.Random(f"{args.seed} {step}"), Tokenizer(), open(args.work / "log.jsonl", "a")
    seen, began, pool = [], time.time(), iter(())
    while step < args.steps:
        batch = next(pool, None)
        if batch is None:
            pool = batches(rng, tokenizer, 1.0, args.tokens, 2900)
            continue
        rate = args.rate * min(1, (step + 1) / 40, max(0.03, 1.5 * (1 - step / args.steps)))
        for group in optimizer.param_groups:
            group["lr"] = rate
        value, right = loss(model, prediction, *batch)
        optimizer.zero_grad()
        value.backward()
        nn.utils.clip_grad_norm_(prediction.parameters(), 1.0)
        optimizer.step()
        step += 1
        seen.append((value.item(), right.float().mean().item()))
        if step % 20 == 0 or step == args.steps:
            mean = [round(sum(part) / len(seen), 4) for part in zip(*seen)]
            print(json.dumps({"step": step, "loss": mean[0], "same_choice": mean[1], "seconds": round(time.time() - began)}), file=log, flush=True)
            torch.save({"prediction": prediction.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, checkpoint.with_suffix(".new"))
            checkpoint.with_suffix(".new").rename(checkpoint)
            seen = []
    write(source, prediction, args.work / "builtin.gguf")


if __name__ == "__main__":
    main()

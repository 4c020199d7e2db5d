"""Reprise beside llama.cpp on the same files, the same threads, by turns: prefill, decode, batch, memory, load.

    pip install llama-cpp-python
    python speed.py --q4 MODEL.q4_k_m.gguf --q8 MODEL.q8_0.gguf --reprise target/release/reprise [--threads 2] [--more FILE ...]

Models: `reprise synth --shape 0.8B --quant q4_k_m --out MODEL.q4_k_m.gguf`, and q8_0. A row is reprise's speed by
llama.cpp's, medians over --rounds, once by the clock and once by the processor time that all threads took together,
which tells what the clock would on a machine with nothing else to do. --long 0 leaves out the rows of a long past; --more
adds decode, prefill, memory and load of other files.

Each measurement is a process of its own. llama.cpp's peak is what its work added to a Python that had imported it;
reprise's is that of its whole process.

Load is the second start's and later ones': the first start of a model packs its weights and keeps them in `data/packed` of
the folder this runs in (`engine.packed_path`), and is not counted.
"""

import argparse
import ctypes
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

SHORT, DECODE = 512, 48


def rss_kib(key):
    for line in open("/proc/self/status"):
        if line.startswith(key):
            return int(line.split()[1])
    return 0


def llama(args):
    """One process of llama.cpp: prints what it measured as JSON."""
    import llama_cpp as api

    @ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
    def silent(*_):
        pass

    api.llama_log_set(silent, None)
    api.llama_backend_init()
    before = rss_kib("VmRSS")
    clock = lambda: (time.perf_counter(), time.process_time())
    start = clock()
    model = api.llama_model_load_from_file(args.model.encode(), api.llama_model_default_params())
    params = api.llama_context_default_params()
    lanes = max(args.batch)
    params.n_ctx = (args.ctx + 2 * DECODE + 16) * lanes
    params.n_batch = params.n_ubatch = SHORT
    params.n_seq_max = lanes
    params.kv_unified = lanes > 1
    params.n_threads = params.n_threads_batch = args.threads
    if args.kv == "q8":
        params.type_k = params.type_v = 8
        params.flash_attn_type = api.LLAMA_FLASH_ATTN_TYPE_ENABLED
    context = api.llama_init_from_model(model, params)
    load = clock()[0] - start[0]
    batch = api.llama_batch_init(SHORT, 0, lanes)

    def run(entries):
        """(token, position, sequences, wanted) of each; seconds by the clock and of the processor."""
        batch.n_tokens = len(entries)
        for i, (token, position, sequences, wanted) in enumerate(entries):
            batch.token[i], batch.pos[i], batch.logits[i] = token, position, wanted
            batch.n_seq_id[i] = len(sequences)
            for j, sequence in enumerate(sequences):
                batch.seq_id[i][j] = sequence
        begin = clock()
        if api.llama_decode(context, batch) != 0:
            raise SystemExit("llama_decode failed")
        api.llama_synchronize(context)
        end = clock()
        return [end[0] - begin[0], end[1] - begin[1]]

    add = lambda a, b: [a[0] + b[0], a[1] + b[1]]
    vocabulary = api.llama_vocab_n_tokens(api.llama_model_get_vocab(model))
    token = lambda at: at * 7919 % vocabulary
    memory = api.llama_get_memory(context)
    run([(token(i), i, [0], 0) for i in range(8)])
    prefills, decodes = [], {lanes: [] for lanes in args.batch}
    for _ in range(args.rounds):
        api.llama_memory_clear(memory, True)
        prefill = [0.0, 0.0]
        for first in range(0, args.ctx, SHORT):
            chunk = range(first, min(first + SHORT, args.ctx))
            prefill = add(prefill, run([(token(i), i, [0], 0) for i in chunk]))
        prefills.append(prefill)
        position = args.ctx
        for lanes in args.batch:
            for lane in range(1, lanes):
                api.llama_memory_seq_rm(memory, lane, -1, -1)
                api.llama_memory_seq_cp(memory, 0, lane, -1, -1)
            took = [0.0, 0.0]
            for step in range(DECODE + 1):
                once = run([(token(7 * step + lane), position + step, [lane], 1) for lane in range(lanes)])
                # The first copies what the sequences share, and is not counted on either side.
                took = add(took, once) if step else took
            position += DECODE + 1
            decodes[lanes].append([value / DECODE for value in took])
    print(json.dumps({
        "load_s": load,
        "prefill": prefills,
        "decode": {str(lanes): values for lanes, values in decodes.items()},
        "peak_mib": (rss_kib("VmHWM") - before) / 1024,
    }))


def peer(args, model, ctx, batch, kv, rounds):
    command = [sys.executable, __file__, "--as-llama", "--model", model, "--ctx", ctx, "--kv", kv]
    command += ["--threads", args.threads, "--rounds", rounds, "--batch", *batch]
    return json.loads(subprocess.run(list(map(str, command)), check=True, stdout=subprocess.PIPE).stdout)


def reprise(args, model, ctx, batch, kv, rounds):
    kv = {"f16": "f16", "q8": "q8"}[kv]
    env = dict(os.environ, REPRISE__ENGINE__THREADS=str(args.threads), REPRISE__PRESET__KV__K=kv, REPRISE__PRESET__KV__V=kv)
    command = [args.reprise, "bench", "speed", "--model", model, "--ctx", ctx, "--decode", DECODE, "--memory-mib", 0]
    command += ["--rounds", rounds, "--batch", ",".join(map(str, batch)), "--json"]
    run = lambda: json.loads(subprocess.run(list(map(str, command)), check=True, stdout=subprocess.PIPE, env=env).stdout)
    found = run()
    if found["packed_now"]:
        found = run()
    at = found["contexts"][0]
    return {
        "load_s": found["load_ms"] / 1e3,
        "prefill": [[at["prefill_ms"] / 1e3, (at["prefill_cpu_ms"] or 0) / 1e3]],
        "decode": {
            str(each["batch"]): [[each["ms_per_step"] / 1e3, (each["cpu_ms_per_step"] or 0) / 1e3]] for each in at["decode"]
        },
        "peak_mib": (at["peak_rss_bytes"] or 0) / 2**20,
    }


def paired(args, model, ctx, batch, kv, rounds):
    """Medians of both, measured by turns."""
    seen = {"llama": [], "reprise": []}
    for turn in range(rounds):
        order = [("llama", peer), ("reprise", reprise)]
        for name, measure in order if turn % 2 == 0 else order[::-1]:
            seen[name].append(measure(args, model, ctx, batch, kv, args.inner if ctx <= SHORT else 1))

    def median(name, pick):
        wall = [value for one in seen[name] for value, _ in pick(one)]
        # Processor time is disturbed in one direction only.
        cpu = [value for one in seen[name] for _, value in pick(one)]
        return statistics.median(wall), min(cpu)

    both = lambda pick: [median(name, pick) for name in ("llama", "reprise")]
    single = lambda key: [statistics.median(one[key] for one in seen[name]) for name in ("llama", "reprise")]
    return both, single


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--q4")
    parser.add_argument("--q8")
    parser.add_argument("--reprise", default="target/release/reprise")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3, help="processes of each side")
    parser.add_argument("--inner", type=int, default=3, help="rounds within a process")
    parser.add_argument("--more", nargs="*", default=[], help="other files, one process of each side at least")
    parser.add_argument("--long", type=int, default=16 * 1000, help="tokens of the long past; 0: leave it out")
    parser.add_argument("--as-llama", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--model", help=argparse.SUPPRESS)
    parser.add_argument("--ctx", type=int, default=SHORT, help=argparse.SUPPRESS)
    parser.add_argument("--kv", default="f16", help=argparse.SUPPRESS)
    parser.add_argument("--batch", type=int, nargs="*", default=[1], help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.as_llama:
        return llama(args)
    print(f"{args.threads} thread(s), {args.rounds} processes of each side by turns; load {os.getloadavg()[0]:.1f}")
    print(f"{'':44} {'llama.cpp':>12} {'reprise':>12} {'ratio':>7} {'by CPU time':>12}")

    def row(name, pair, tokens, unit="tokens/s"):
        (peer_wall, peer_cpu), (wall, cpu) = pair
        by_cpu = f"{peer_cpu / cpu:12.2f}" if cpu and peer_cpu else f"{'-':>12}"
        print(f"{name:44} {tokens / peer_wall:12.1f} {tokens / wall:12.1f} {peer_wall / wall:7.2f} {by_cpu}  {unit}", flush=True)

    def memory_and_load(single):
        for name, key, unit in [("peak memory (ratio: lower is better)", "peak_mib", "MiB"), ("load (lower is better)", "load_s", "s")]:
            theirs, ours = single(key)
            print(f"{name:44} {theirs:12.2f} {ours:12.2f} {ours / theirs:7.2f} {'':12}  {unit}", flush=True)

    if args.q4:
        both, single = paired(args, args.q4, SHORT, [1, 4], "f16", args.rounds)
        row("decode Q4_K_M, short context", both(lambda one: one["decode"]["1"]), 1)
        row("4 sessions decoding in one batch", both(lambda one: one["decode"]["4"]), 4)
        row(f"prefill {SHORT}, Q4_K_M", both(lambda one: one["prefill"]), SHORT)
        memory_and_load(single)
    if args.q8:
        both, _ = paired(args, args.q8, SHORT, [1], "f16", args.rounds)
        row("decode Q8_0", both(lambda one: one["decode"]["1"]), 1)
        row(f"prefill {SHORT}, Q8_0", both(lambda one: one["prefill"]), SHORT)
    for path in args.more:
        both, single = paired(args, path, SHORT, [1], "f16", args.rounds)
        print(pathlib.Path(path).name)
        row("decode, short context", both(lambda one: one["decode"]["1"]), 1)
        row(f"prefill {SHORT}", both(lambda one: one["prefill"]), SHORT)
        memory_and_load(single)
    if args.q4 and args.long:
        both, single = paired(args, args.q4, args.long, [1], "q8", 1)
        row(f"decode Q4_K_M at {args.long} tokens, q8 KV", both(lambda one: one["decode"]["1"]), 1)
        row(f"prefill {args.long}, q8 KV", both(lambda one: one["prefill"]), args.long)
        theirs, ours = single("peak_mib")
        print(f"{'peak memory of it':44} {theirs:12.2f} {ours:12.2f} {ours / theirs:7.2f} {'':12}  MiB")
    return None


if __name__ == "__main__":
    main()

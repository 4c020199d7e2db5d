"""The README's table of contexts from what `reprise bench` measured.

    REPRISE__PRESET__KV__K=q8 REPRISE__PRESET__KV__V=q8 reprise bench --model MODEL.q4_k_m.gguf \\
        --ctx 512,4096,16384,65536 --rounds 1 --json > contexts.json
    python contexts_table.py contexts.json
"""

import json
import sys


def main():
    found = json.load(open(sys.argv[1]))
    model, machine = found["model"], found["machine"]
    print(f"{model['name']}, keys and values as {model['kv'][0]} and {model['kv'][1]}, {machine['threads']} threads, {found['rounds']} round(s);")
    print(f"loaded in {found['load_ms']:.0f} ms; memory {found['memory_gb_per_s'] or 0:.1f} GB/s when only read, {found['int8_gops'] or 0:.0f} billion byte operations a second\n")
    print("| context | prefill, tokens/s | its last chunk | of int8 | decode, tokens/s | weights of memory speed | peak memory |")
    print("|---|---|---|---|---|---|---|")
    share = lambda value: "-" if value is None else f"{100 * value:.0f} %"
    for at in found["contexts"]:
        decode = at["decode"][0]
        cells = [
            f"{at['ctx']:,}",
            f"{at['prefill_tokens_per_s']:.0f}",
            f"{at['prefill_last_chunk_tokens_per_s']:.0f}",
            share(at["prefill_share_of_int8"]),
            f"{decode['tokens_per_s']:.1f}",
            share(decode["share_of_memory_speed"]),
            f"{(at['peak_rss_bytes'] or 0) / 2**20:,.0f} MiB",
        ]
        print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()

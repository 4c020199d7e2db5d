"""What ten replays of arms that are equal measured: makes equal_arms.json.

    printf '[presets.twin]\\nbase = "builtin-1k"\\n' > reprise.toml
    for s in 1 2 3 4 5 6 7 8 9 10; do
      reprise ab replay --generate s$s.jsonl --seed $s --turns 20
      reprise ab replay --script s$s.jsonl --arms builtin-1k,twin --runs 2 --reply 24 --out out-$s --json > /dev/null
    done
    python make_equal_arms.py out-1 ... out-10 > equal_arms.json

Times are those of a machine that others used too: that is what a comparison has to bear."""
import json, pathlib, sys

METRICS = ["first_token_ms", "first_token_p95_ms", "first_sentence_ms", "total_ms", "decode_tokens_per_second", "tokens_in", "tokens_out",
           "fill_share", "reused_tokens", "computed_tokens", "compactions", "drops", "session_bytes", "recall"]


def values(played):
    m, asked = played["measurement"], played["asked"]
    decoded = m["tokens_out"] - 1
    speed = decoded * 1e3 / m["decode_ms"] if decoded > 0 and m["decode_ms"] > 0 else None
    found = [m["first_token_ms"], m["first_token_ms"], m["first_sentence_ms"], m["total_ms"], speed, m["tokens_in"], m["tokens_out"],
             m["fill_tokens"] / m["ctx_size"], m["reused_tokens"], m["computed_tokens"], m["compactions"], m["drops"],
             sum(m["memory"].get(kind, 0) for kind in ["pages", "snapshots", "trails", "live"]), None if asked is None else int(asked["right"])]
    # The first turn waits for what all others find done.
    return [None if played["after_start"] and metric.endswith(("_ms", "_second")) else value for metric, value in zip(METRICS, found)]


replays = []
for folder in sys.argv[1:]:
    lines = (pathlib.Path(folder) / "turns.jsonl").read_text().splitlines()
    replays.append([[p["run"], p["turn"], p["arm"], *(v if v is None else round(v, 4) for v in values(p))]
                    for p in map(json.loads, lines) if p["measurement"]])
print('{"metrics": ' + json.dumps(METRICS) + ',\n"replays": [')
print(",\n".join("[" + ",\n".join(json.dumps(row, separators=(",", ":")) for row in replay) + "]" for replay in replays))
print("]}")

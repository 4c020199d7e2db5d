"""Draws tokens a second over the window, a line for each format of keys and values, from the bench's lines.

    python tests/gpu/plot.py bench.jsonl docs/images/window-speed.svg
"""

import json
import math
import sys

LEFT, TOP, WIDTH, HEIGHT = 56, 40, 520, 260
COLOURS = ("#2563eb", "#d97706", "#059669", "#dc2626", "#7c3aed", "#0891b2")


def short(kv):
    key, value = (name.removesuffix("_0") for name in kv.split(":"))
    return key if key == value else f"{key}, {value}"


def main(source, target):
    lines = [json.loads(line) for line in open(source, encoding="utf-8") if line.startswith("{")]
    device = next(line["name"] for line in lines if line["what"] == "device")
    series = {}
    for line in lines:
        if line["what"] == "decode":
            series.setdefault(short(line["kv"]), []).append((line["ctx"], line["tokens_per_s"]))
    lengths = sorted({ctx for points in series.values() for ctx, _ in points})
    first, last = math.log2(lengths[0]), math.log2(lengths[-1])
    most = math.ceil(max(speed for points in series.values() for _, speed in points) / 100) * 100
    x = lambda ctx: LEFT + (math.log2(ctx) - first) / (last - first) * WIDTH
    y = lambda speed: TOP + HEIGHT - speed / most * HEIGHT
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 110} {TOP + HEIGHT + 56}" font-family="sans-serif" font-size="13">',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="22" font-size="15">Tokens a second behind so many tokens, 9B in Q4_K_M, {device}</text>',
    ]
    for speed in range(0, most + 1, 100):
        out.append(f'<path d="M{LEFT} {y(speed):.1f}H{LEFT + WIDTH}" stroke="#e5e7eb"/>')
        out.append(f'<text x="{LEFT - 8}" y="{y(speed) + 4:.1f}" text-anchor="end">{speed}</text>')
    for ctx in lengths:
        out.append(f'<text x="{x(ctx):.1f}" y="{TOP + HEIGHT + 20}" text-anchor="middle">{ctx:,}</text>')
    out.append(f'<text x="{LEFT + WIDTH / 2}" y="{TOP + HEIGHT + 42}" text-anchor="middle">tokens in the window</text>')
    # Names stand beside the ends of their lines, one below the other.
    ends = sorted(series, key=lambda name: -series[name][-1][1])
    names = {name: y(series[ends[0]][-1][1]) - 28 + 16 * at for at, name in enumerate(ends)}
    for colour, (name, points) in zip(COLOURS, series.items()):
        path = "L".join(f"{x(ctx):.1f} {y(speed):.1f}" for ctx, speed in points)
        out.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out.append(f'<text x="{LEFT + WIDTH + 8}" y="{names[name] + 4:.1f}" fill="{colour}">{name}</text>')
    out.append("</svg>")
    open(target, "w", encoding="utf-8").write("\n".join(out) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])

"""The loss and the held-out answers over the training, as a picture.

    python plot.py LOG.jsonl OUT.svg
"""
import json, sys
import matplotlib
matplotlib.use("svg")
import matplotlib.pyplot as plt

# Where training went on from a checkpoint, the later line of a step holds.
lines = {line["step"]: line for line in map(json.loads, open(sys.argv[1]))}
lines = [lines[step] for step in sorted(lines)]
million = lambda line: line["tokens"] / 1e6
figure, (above, below) = plt.subplots(2, 1, figsize=(7, 6), sharex=True)
above.plot([million(x) for x in lines], [x["loss"] for x in lines], linewidth=1)
above.set_yscale("log")
above.set_ylabel("loss on what it learns")
looks = [x for x in lines if "held_out" in x]
for name in ["tell", "recall", "unknown", "tool", "result", "summary", "chat"]:
    there = [x for x in looks if name in x["held_out"]]
    if there:
        below.plot([million(x) for x in there], [x["held_out"][name] for x in there], linewidth=1, label=name)
below.set_ylim(0, 1)
below.set_ylabel("answers exactly right, held out")
below.set_xlabel("tokens (millions)")
below.legend(fontsize=7, ncol=4)
figure.tight_layout()
figure.savefig(sys.argv[2], metadata={"Date": None})

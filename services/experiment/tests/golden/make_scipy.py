"""Writes scipy.json: what SciPy says of the numbers that tests/scipy.rs asks about.

    python3 -m venv venv && venv/bin/pip install scipy==1.17.1 && venv/bin/python make_scipy.py

The samples come from a linear congruential generator, so that they are the same with every version of NumPy.
"""

import json
import pathlib

import numpy as np
import scipy
from scipy import stats


def samples(seed, n, scale, shift):
    state, values = seed, []
    for _ in range(n):
        state = (state * 1103515245 + 12345) % 2**31
        values.append(round(shift + scale * (state / 2**31) ** 3, 6))
    return values


def bootstrap(a, b, statistic, paired):
    def of(x, y, axis=-1):
        return statistic(y, axis=axis) - statistic(x, axis=axis)

    found = stats.bootstrap(
        (np.array(a), np.array(b)), of, paired=paired, vectorized=True, method="percentile", n_resamples=99_999,
        confidence_level=0.95, rng=np.random.default_rng(1),
    )
    low, high = found.confidence_interval
    return {"a": a, "b": b, "paired": paired, "low": low, "high": high, "error": found.standard_error}


def p95(values, axis=-1):
    return np.quantile(values, 0.95, axis=axis, method="inverted_cdf")


a, b = samples(1, 120, 400.0, 90.0), samples(2, 90, 400.0, 120.0)
same = samples(3, 120, 30.0, 100.0)
golden = {
    "scipy": scipy.__version__,
    "chi_square": [
        {"counts": c, "weights": w, "p": stats.chisquare(c, np.array(w) / sum(w) * sum(c)).pvalue}
        for c, w in [([50, 50], [1, 1]), ([60, 40], [1, 1]), ([520, 480], [1, 1]), ([10, 20, 70], [1, 2, 7]),
                     ([30, 20, 50], [1, 2, 7]), ([50500, 49500], [1, 1]), ([3, 1], [3, 1]), ([1000, 10], [1, 1])]
    ],
    "normal_cdf": [[z, stats.norm.cdf(z)] for z in [-8.0, -3.0, -1.96, -0.5, 0.0, 0.1, 1.0, 2.5758, 5.0]],
    "student_quantile": [
        [p, n, stats.t.ppf(p, n)]
        for p in [0.001, 0.025, 0.2, 0.5, 0.9, 0.9987] for n in [1, 2, 3, 7, 30, 400]
    ],
    "wilson": [
        {"hits": k, "of": n, "low": i.low, "high": i.high}
        for k, n in [(0, 10), (1, 10), (5, 10), (10, 10), (3, 300), (499, 1000)]
        for i in [stats.binomtest(k, n).proportion_ci(0.95, method="wilson")]
    ],
    "summary": [
        {"values": v, "median": float(np.median(v)), "p95": float(p95(np.array(v)))}
        for v in [a, b, samples(4, 1, 1.0, 0.0), samples(5, 20, 9.0, 0.0), samples(6, 21, 9.0, 0.0)]
    ],
    "mean": [bootstrap(a, b, np.mean, False), bootstrap(a, [x + y / 50 for x, y in zip(a, same)], np.mean, True)],
    "median": [bootstrap(a, b, np.median, False), bootstrap(a, [x + 5 for x in same], np.median, True)],
    "p95": [bootstrap(a, b, p95, False)],
}
pathlib.Path(__file__).with_name("scipy.json").write_text(json.dumps(golden, indent=1) + "\n")

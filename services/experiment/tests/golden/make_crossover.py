# Known answers for the crossover: least squares with a column for each user, one for the arm and one for the number of the
# period, solved by NumPy, with SciPy's t. Run: python make_crossover.py > crossover.json (numpy 2, scipy 1.17).
import json

import numpy as np
from scipy import stats

random = np.random.default_rng(11)
cases = []
for users, each, effect, drift in [(3, 13, 30.0, 0.0), (1, 8, 0.0, 4.0), (5, 4, -12.0, -1.0), (2, 30, 1.0, 0.2), (4, 6, 0.0, 0.0)]:
    rows = []
    for user in range(users):
        level = 100 * random.random() + 50
        for block in range(each // 2):
            for place, arm in enumerate(random.permutation(2)):
                number = 2 * block + place
                rows.append((user, number, int(arm), level + effect * arm + drift * number + 10 * random.standard_normal()))
    # One user who met one arm only, and says nothing.
    rows += [(99, number, 0, 1000.0 + number) for number in range(3)]
    own = [row for row in rows if row[0] != 99]
    y = np.array([row[3] for row in own])
    columns = [np.array([float(row[0] == user) for row in own]) for user in range(users)]
    x = np.stack(columns + [np.array([float(row[2]) for row in own]), np.array([float(row[1]) for row in own])], 1)
    beta, *_ = np.linalg.lstsq(x, y, rcond=None)
    degrees = len(own) - x.shape[1]
    variance = ((y - x @ beta) ** 2).sum() / degrees * np.linalg.inv(x.T @ x)
    error, drift_error = np.sqrt(variance[-2, -2]), np.sqrt(variance[-1, -1])
    half = stats.t.ppf(0.975, degrees) * error
    cases.append({
        "periods": [[int(user), int(number), int(arm), float(value)] for user, number, arm, value in rows],
        "estimate": float(beta[-2]), "standard_error": float(error), "degrees": degrees,
        "low": float(beta[-2] - half), "high": float(beta[-2] + half),
        "drift": float(beta[-1]), "drift_p": float(2 * stats.t.sf(abs(beta[-1] / drift_error), degrees)),
    })
print(json.dumps({"crossover": cases, "normal_quantile": [[p, float(stats.norm.ppf(p))] for p in (0.5, 0.8, 0.975, 0.9995)]}))

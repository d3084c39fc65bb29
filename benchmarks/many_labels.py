"""The case study of many labels: incomes by a Gaussian process with a proved loss; keeps what it finds.

    python benchmarks/many_labels.py --data FOLDER [--points 200] [--rows N]

FOLDER holds adult.csv.gz (UCI, columns ``y``, ``V1`` to ``V14``). Every tenth row of a permutation by seed 0 is held
out, as in ``benchmarks/uci.py``. The kernel is Matern of 3/2 with a length for each column, learned. Writes
``examples/case_studies/many_labels.json``.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.gaussian_process.kernels import ConstantKernel, Matern
from uci import read

from fenchel.estimators import GaussianProcessClassifier

KEPT = Path(__file__).parent.parent / "examples" / "case_studies" / "many_labels.json"


def judged(p: np.ndarray, y: np.ndarray) -> dict[str, object]:
    """Error rate, mean log score, and how often y = 1 by tenths of the probability."""
    p = np.clip(p, 1e-12, 1.0 - 1e-12)
    tenth = np.minimum((10 * p).astype(int), 9)
    bins = [(float(p[tenth == k].mean()), float(y[tenth == k].mean()), int((tenth == k).sum())) for k in range(10)]
    score = float(np.mean(np.log(np.where(y > 0.0, p, 1.0 - p))))
    return {"error": float(np.mean((p > 0.5) != y)), "score": score, "bins": bins}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--points", type=int, default=200)
    parser.add_argument("--rows", type=int)
    args = parser.parse_args()
    table = read(args.data, "adult", args.rows)
    kernel = ConstantKernel(1.0, (1e-3, 1e4)) * Matern(np.full(14, 14**0.5), (1e-2, 1e4), nu=1.5)
    began = time.process_time()
    fit = GaussianProcessClassifier(kernel, approximation="inducing", n_inducing=args.points)
    fit.fit(table.X, table.y)
    seconds = time.process_time() - began
    last = fit.approximation_.iloc[-1]
    trees = HistGradientBoostingClassifier(random_state=0).fit(table.X, table.y)
    found = {
        "rows": len(table.y),
        "held_out": len(table.y_new),
        "points": int(last["n_inducing"]),
        "elbo": float(fit.elbo_),
        "gap": float(fit.gap_),
        "loss": float(last["bound"]),
        "proved": not last["standard_error"],
        "processor_seconds": seconds,
        "lengths": np.asarray(fit.kernel_.k2.length_scale).tolist(),
        "process": judged(fit.predict_proba(table.X_new)[:, 1], table.y_new),
        "trees": judged(trees.predict_proba(table.X_new)[:, 1], table.y_new),
    }
    KEPT.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({name: value for name, value in found.items() if name not in ("process", "trees")}, indent=1))
    print(f"error {found['process']['error']:.4f}, trees {found['trees']['error']:.4f}")


if __name__ == "__main__":
    main()

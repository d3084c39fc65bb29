"""What corrected and integrated fits cost, in plain fits: processor seconds over those of accuracy="fast".

    OPENBLAS_NUM_THREADS=1 python benchmarks/plain_fits.py [--only ohio ...] [--times 3]

"corrected" is accuracy="fast", evidence="corrected"; "integrated" is integrate="auto", corrected; each in turn with the
plain fit, the least of several. Tables of R's packages where Rscript is present (contraception is mlmRev's), and one
that is simulated, with six hyperparameters. Targets: corrected at most 5 plain fits; integrated at most 15 for up to
three hyperparameters and 30 for six.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import defaults
import numpy as np
import pandas as pd

import fenchel

CASES: dict[str, tuple[str, str]] = {
    "Contraception": ("y ~ age + age2 + urban + livch + (urban|district)", "bernoulli"),
    "ohio": ("resp ~ age + smoke + (1|id)", "bernoulli"),
    "grouseticks": ("TICKS ~ YEAR + cHEIGHT + (1|INDEX) + (1|BROOD) + (1|LOCATION)", "poisson"),
    "VerbAgg": ("y ~ Anger + Gender + btype + situ + (1|id) + (1|item)", "bernoulli"),
    "six": ("y ~ x + (x|g) + (x|h)", "poisson"),
}
CORRECTED = 5.0
INTEGRATED = {1: 15.0, 2: 15.0, 3: 15.0, 6: 30.0}


def six() -> pd.DataFrame:
    """Intercepts and slopes of two crossed groupings."""
    rng = np.random.default_rng(0)
    g, h, x = np.repeat(np.arange(40), 15), rng.integers(0, 25, 600), rng.normal(size=600)
    eta = 0.5 + 0.4 * x + 0.6 * rng.normal(size=40)[g] + 0.4 * rng.normal(size=25)[h]
    eta += (0.3 * rng.normal(size=40)[g] + 0.3 * rng.normal(size=25)[h]) * x
    return pd.DataFrame({"y": rng.poisson(np.exp(eta)), "x": x, "g": g, "h": h})


def measured(name: str, data: pd.DataFrame, times: int) -> dict[str, Any]:
    formula, family = CASES[name]
    ways: dict[str, dict[str, Any]] = {
        "plain": {"accuracy": "fast"},
        "corrected": {"accuracy": "fast", "evidence": "corrected"},
        "integrated": {"integrate": "auto"},
    }
    least, fits = dict.fromkeys(ways, np.inf), {}
    for _ in range(times):
        for way, how in ways.items():
            began = time.process_time()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                fits[way] = fenchel.fit(formula, data, family, **how)
            least[way] = min(least[way], time.process_time() - began)
    n = fits["plain"].theta.size
    out: dict[str, Any] = {"table": name, "rows": len(data), "theta": n, "plain, s": least["plain"]}
    out["corrected"], out["integrated"] = (least[way] / least["plain"] for way in ("corrected", "integrated"))
    out["fits"], out["evidence"] = fits["integrated"].integrated.n_fits, fits["integrated"].integrated.evidence
    within = out["corrected"] <= CORRECTED and out["integrated"] <= INTEGRATED[n]
    out["verdict"] = "ok" if within else f"over {CORRECTED:g} / {INTEGRATED[n]:g}"
    return out


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ask.add_argument("--only", nargs="+", choices=list(CASES), default=list(CASES))
    ask.add_argument("--times", type=int, default=3)
    asked = ask.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        if shutil.which("Rscript") is not None:
            defaults.from_r(folder, "data")
        for name in asked.only:
            path = folder / f"{name}.json"
            if name != "six" and not path.exists():
                print(f"{name}: left out, its package of R is not here")
                continue
            rows.append(measured(name, six() if name == "six" else defaults.read(path), asked.times))
            if len(rows) == 1:
                print(f"| {' | '.join(rows[0])} |\n{'|---' * len(rows[0])}|")
            cells = [f"{v:.2g}" if isinstance(v, float) else str(v) for v in rows[-1].values()]
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()

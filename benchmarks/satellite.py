"""The default field on 105,569 satellite temperatures, scored on 42,740 masked cells (Heaton et al. 2019).

    python benchmarks/satellite.py [--data ../shared/data/large/satellite.csv.gz]

The data are columns lon, lat, temperature (empty where masked) and truth; without the file a field of the same size is
drawn, which has no published scores. ``temperature ~ lon + lat + matern(x, y)`` is called as it stands, x and y in
kilometres, and scored by outcome: RMSE, CRPS of a normal prediction, and the share of truths within 95 % intervals.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import norm

import fenchel

PUBLISHED = {  # RMSE, CRPS and coverage of Heaton et al. 2019
    "SPDE (alpha = 1.5, a node a pixel)": (1.53, 0.83, 0.97),
    "NNGP (exponential)": (1.64, 0.85, 0.95),
    "LatticeKrig": (1.68, 0.87, 0.96),
}


def read(path: Path) -> pd.DataFrame:
    """The cells, or a drawn field of as many with holes of clouds."""
    if path.exists():
        return pd.read_csv(path)
    print(f"{path} is not there: a field of the same size is drawn")
    rng = np.random.default_rng(0)
    lat, lon = np.meshgrid(np.linspace(37.07, 34.30, 300), np.linspace(-95.91, -91.28, 500), indexing="ij")
    k = np.fft.fftfreq(300)[:, None] ** 2 + np.fft.rfftfreq(500) ** 2
    waves = lambda power, least: np.fft.irfft2(
        np.fft.rfft2(rng.normal(size=(300, 500))) * (least + k) ** (-power / 2.0), s=(300, 500)
    )
    scaled = lambda f: (f - f.mean()) / f.std()
    truth = 45.0 - 2.4 * (lon + 93.6) + 2.0 * scaled(waves(1.5, 1e-4)) + 0.3 * rng.normal(size=(300, 500))
    cloud = scaled(waves(4.0, 1e-4)) > 0.52
    columns = {"lon": lon, "lat": lat, "temperature": np.where(cloud, np.nan, truth), "truth": truth}
    return pd.DataFrame({name: values.ravel() for name, values in columns.items()})


def scores(mean: np.ndarray, sd: np.ndarray, truth: np.ndarray) -> tuple[float, float, float]:
    """RMSE, CRPS and coverage of 95 % intervals."""
    z = (truth - mean) / sd
    crps = sd * (z * (2.0 * norm.cdf(z) - 1.0) + 2.0 * norm.pdf(z) - 1.0 / np.sqrt(np.pi))
    off = truth - mean
    within = np.abs(z) < norm.ppf(0.975)
    return float(np.sqrt(np.mean(off**2))), float(crps.mean()), float(within.mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data/large/satellite.csv.gz"))
    parser.add_argument("--formula", default="temperature ~ lon + lat + matern(x, y)")
    given = parser.parse_args()
    cells = read(given.data)
    lon, lat = cells["lon"].mean(), cells["lat"].mean()
    cells["x"] = (cells["lon"] - lon) * np.cos(np.radians(lat)) * 111.32
    cells["y"] = (cells["lat"] - lat) * 110.57
    seen = cells[cells["temperature"].notna()]
    masked = cells[cells["temperature"].isna() & cells["truth"].notna()]
    wall, processor = time.perf_counter(), time.process_time()
    fit = fenchel.fit(given.formula, seen)
    fitted = time.perf_counter() - wall
    predicted = fit.predict(masked, kind="outcome", interval=0.95)
    seconds = time.perf_counter() - wall
    processor = time.process_time() - processor
    found = scores(predicted["mean"].to_numpy(), predicted["sd"].to_numpy(), masked["truth"].to_numpy())
    print(f"{given.formula}: {len(seen)} rows, {len(masked)} cells predicted")
    print(f"fit {fitted:.1f} s, prediction {seconds - fitted:.1f} s, {processor:.1f} s of processors in all")
    field = fit.model.sum.effects[0]
    print(f"{field.details()}; {field.mesh}")
    print(fit.hyperparameters["value"].round(3).to_string())
    print(f"{'':36} {'RMSE':>6} {'CRPS':>6} {'cover':>6}")
    rows = {"fenchel, as called": found}
    if given.data.exists():
        rows |= PUBLISHED
    for name, values in rows.items():
        print(f"{name:36} " + " ".join(f"{value:6.3g}" for value in values))


if __name__ == "__main__":
    main()

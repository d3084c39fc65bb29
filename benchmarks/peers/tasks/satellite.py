"""Land-surface temperatures under clouds (Heaton et al. 2019)."""

import numpy as np
import pandas as pd
from run import Task, crps


def task(quick, folder):
    path = None if folder is None else folder / "satellite.csv.gz"
    if path is None or not path.exists():
        return "the table is not in the package: --data FOLDER with satellite.csv.gz (lon, lat, temperature, truth)"
    cells = pd.read_csv(path)
    lon, lat = cells["lon"].mean(), cells["lat"].mean()
    cells["x"] = (cells["lon"] - lon) * np.cos(np.radians(lat)) * 111.32
    cells["y"] = (cells["lat"] - lat) * 110.57
    seen = cells[cells["temperature"].notna()].iloc[:: 20 if quick else 1]
    masked = cells[cells["temperature"].isna() & cells["truth"].notna()].iloc[:: 20 if quick else 1]
    truth = masked["truth"].to_numpy()

    def judge(answer):
        mean, sd = answer["mean"], answer["sd"]
        inside = np.abs(truth - mean) < 1.959964 * sd
        rmse = np.sqrt(np.mean((mean - truth) ** 2))
        return {"RMSE": rmse, "CRPS": crps(mean, sd, truth), "95 % hold": inside.mean()}

    named = lambda frame, names: {name: frame[name].to_numpy() for name in names}
    return Task(
        "Satellite field",
        f"{len(seen)} temperatures, {len(masked)} cells under clouds predicted: RMSE and CRPS. Published (RMSE, CRPS, "
        "95 % hold): SPDE 1.53, 0.83, 0.97; NNGP 1.64, 0.85, 0.95; LatticeKrig 1.68, 0.87, 0.96. fenchel's rules for a "
        "mesh were settled with these scores in view (docs/maps.md); those of the peers were not.",
        {
            "train": named(seen, ("temperature", "lon", "lat", "x", "y")),
            "test": named(masked, ("lon", "lat", "x", "y")),
        },
        judge,
        ("RMSE", "CRPS"),
        0.0,
    )

"""One fit of one peer on one table, in a process of its own: a line of json.

    python one_fit.py --data FOLDER --table kin40k --peer gpytorch-sgpr [--rows N] [--threads 2] [--device cuda]

Imports, compiling and a first call on 300 rows come before the clock. Memory is the peak of the process, all it has
imported included, and that of the device.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import time
import warnings
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

MODULES = {"fenchel": "fenchel_fits", "gpytorch": "gpytorch_fits", "gpboost": "gpboost_fits", "sklearn": "sklearn_fits"}
FEW = 300


def versions(names: tuple[str, ...]) -> dict[str, str]:
    out = {}
    for name in names:
        try:
            out[name] = version(name)
        except PackageNotFoundError:
            out[name] = "not installed" if name not in sys.modules else str(sys.modules[name].__version__)
    return out


def measured(args: argparse.Namespace) -> dict[str, Any]:
    module = import_module(MODULES[args.peer.split("-")[0]])
    from tables import judged, read

    table, fit = read(args.data, args.table, args.rows), module.FITS[args.peer]
    if table.labels and args.peer in getattr(module, "NUMBERS_ALONE", ()):
        return {"failed": "of numbers alone"}
    on_gpu = args.device is not None and args.device.startswith("cuda")
    torch = import_module("torch") if on_gpu or args.peer.startswith("gpytorch") else None
    if torch is not None:
        torch.manual_seed(0)
        torch.set_num_threads(args.threads)

    def now() -> float:
        if on_gpu:
            torch.cuda.synchronize()
        return time.perf_counter()

    predict, _ = fit(table.X[:FEW], table.y[:FEW], table.labels, args.device)
    predict(table.X_new[:FEW])
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    began, processor = now(), time.process_time()
    predict, notes = fit(table.X, table.y, table.labels, args.device)
    seconds, processor = now() - began, time.process_time() - processor
    began = now()
    predicted = predict(table.X_new)
    later = now() - began
    first, score = judged(table, predicted)
    return {
        "error": first,
        "nlpd": score,
        "seconds": seconds,
        "processor": processor,
        "predict": later,
        "gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "device_gib": torch.cuda.max_memory_allocated() / 2**30 if on_gpu else None,
        **notes,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--table", required=True)
    parser.add_argument("--peer", required=True)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device")
    args = parser.parse_args()
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(args.threads)  # before numpy is imported
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            out = measured(args)
    except ModuleNotFoundError as error:
        out = {"failed": f"{error.name} is not installed"}
    except Exception as error:
        said = str(error).strip().splitlines() or [""]
        out = {"failed": f"{type(error).__name__}: {said[0][:120]}"}
    module = sys.modules.get(MODULES[args.peer.split("-")[0]])
    out["versions"] = versions(module.PACKAGES) if module is not None else {}
    print(json.dumps(out))


if __name__ == "__main__":
    main()

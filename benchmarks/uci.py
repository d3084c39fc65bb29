"""Gaussian processes of many rows on tables of the UCI repository, beside their peers: one table.

    python benchmarks/uci.py --data FOLDER [--tables kin40k ...] [--peers fenchel gpytorch-sgpr ...] [--rows N]

FOLDER holds kin40k, protein, elevators, bike, adult and credit as csv.gz (``large_process/tables.py``); ``--rows``
draws so many training rows. Each fit runs in a fresh process (``large_process/one_fit.py``), so that its memory is its
own, with ``--threads`` threads. Peers are the functions of ``large_process/*_fits.py``, which say their settings, and
run in the Python at ``--python``. All are judged by what they predict, in float64. ``--at-once`` runs several processes
side by side, each on cores of its own. A peer that is not installed, fails, or takes more than ``--limit`` seconds of
the processor is a row that says so.

RMSE/err   root mean squared error of standardised y, or the share of wrong labels
NLPD       mean negative log density of a held-out y, or log loss
elbo       or the log evidence that a peer tells
loss <=    nats of elbo that the points cost, at most (~: an estimate)
seconds    of the fit by the clock; process: of the processor; predict: of predictions; /ours: in times of the first
           fenchel that is named, of the processor, or of the clock on a device
GiB, dev.  peak memory of the process, and of the device
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from queue import SimpleQueue
from typing import Any

HERE = Path(__file__).parent / "large_process"
TABLES = ("kin40k", "elevators", "bike", "protein", "adult", "credit")
OURS = ("fenchel", "fenchel-512")
PEERS = (
    *OURS,
    "gpytorch-sgpr",
    "gpytorch-sgpr-ard",
    "gpytorch-svgp",
    "gpytorch-svgp-ard",
    "gpytorch-exact-ard",
    "gpboost-vecchia",
    "sklearn-subset",
    "sklearn-boosting",
)
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
PATIENCE = 8  # seconds of the clock for each processor second that a fit may take, on a machine that others use, too
EXACT_ROWS = 5_000  # of GPyTorch's exact process on a processor; more need a device


def fitted(job: tuple[str, str], args: argparse.Namespace, free: SimpleQueue[list[int]]) -> dict[str, Any]:
    """What a fresh process prints of one fit."""
    table, peer = job
    exact_on_processor = peer == "gpytorch-exact-ard" and args.device is None
    if exact_on_processor and not (args.rows and args.rows <= EXACT_ROWS):
        return {"failed": f"not tried: more than {EXACT_ROWS} rows"}
    if args.until and time.perf_counter() - args.began > args.until:
        return {"failed": "not begun: the time was up"}
    python = sys.executable if peer.startswith(("fenchel", "sklearn")) else args.python
    call = [python, str(HERE / "one_fit.py"), "--data", str(args.data), "--table", table, "--peer", peer]
    call += ["--threads", str(args.threads)]
    call += ["--rows", str(args.rows)] if args.rows else []
    call += ["--device", args.device] if args.device and peer.startswith(("fenchel", "gpytorch")) else []
    threads = {name: str(args.threads) for name in THREADS}
    cores = free.get()
    if cores and hasattr(os, "sched_setaffinity"):
        call = [python, "-c", _PINNED, ",".join(map(str, cores)), *call]
    used = int(args.limit)
    limit = PATIENCE * args.limit
    if args.until:
        limit = min(limit, args.until - (time.perf_counter() - args.began) + 1.0)
    at_most = lambda: resource.setrlimit(resource.RLIMIT_CPU, (used, used))
    options = {"capture_output": True, "text": True, "timeout": limit, "env": {**os.environ, **threads}}
    try:
        done = subprocess.run(call, preexec_fn=at_most, **options)
        if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
            return {"failed": f"no answer within {used} processor seconds"}
        lines = done.stdout.strip().splitlines()
        return json.loads(lines[-1]) if lines else {"failed": f"ended with {done.returncode}: {done.stderr[-120:]}"}
    except subprocess.TimeoutExpired:
        return {"failed": f"no answer within {limit:.0f} s by the clock"}
    finally:
        free.put(cores)


_PINNED = (
    "import os, sys; os.sched_setaffinity(0, map(int, sys.argv[1].split(','))); os.execv(sys.argv[2], sys.argv[2:])"
)


def row(job: tuple[str, str], every: dict[tuple[str, str], dict[str, Any]], which: str) -> str:
    """A line of the table; ``which`` seconds are compared with fenchel's."""
    found, ours = every[job], next((every[each] for each in every if each[0] == job[0] and "fenchel" in each[1]), {})
    start = f"{job[0]:<10}{job[1]:<20}"
    if "failed" in found:
        return f"{start}{found['failed']}"
    times = f"{found[which] / ours[which]:>8.2f}" if which in ours else f"{'':>8}"
    loss = ""
    if found.get("loss") is not None:
        loss = f"{'~' if found.get('estimated') else ''}{found['loss']:.3g}"
    elbo = f"{found['elbo']:.1f}" if "elbo" in found else ""
    device = f"{found['device_gib']:.2f}" if found.get("device_gib") is not None else ""
    seconds = f"{found['seconds']:>9.1f}{found['processor']:>9.1f}{found['predict']:>8.1f}{times}"
    scores = f"{found.get('points', ''):>6}{found['error']:>9.4f}{found['nlpd']:>9.4f}{elbo:>12}{loss:>9}"
    return f"{start}{scores}{seconds}{found['gib']:>7.2f}{device:>7}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--tables", nargs="+", default=list(TABLES), choices=TABLES)
    parser.add_argument(
        "--peers",
        nargs="+",
        default=list(PEERS),
        help=f"of {', '.join(PEERS)}, fenchel-coarse, -64, -128, -256, -1000, -2000",
    )
    parser.add_argument("--rows", type=int)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", help="torch's, of fenchel and GPyTorch")
    parser.add_argument("--python", default=sys.executable, help="of the peers that are not in this one")
    parser.add_argument("--at-once", type=int, default=1, help="processes side by side, each on cores of its own")
    parser.add_argument("--first-core", type=int, default=0)
    parser.add_argument("--limit", type=float, default=3600.0, help="processor seconds of a fit and its imports")
    parser.add_argument("--until", type=float, help="seconds after which nothing is begun and all ends")
    parser.add_argument("--kernels", action="store_true", help="print the kernels that were learned, too")
    args = parser.parse_args()
    args.began = time.perf_counter()
    todo, free = list(product(args.tables, args.peers)), SimpleQueue[list[int]]()
    there = os.cpu_count() or 1
    for i in range(args.at_once):
        first = args.first_core + i * args.threads
        free.put(list(range(first, first + args.threads)) if first + args.threads <= there else [])
    head = f"{'table':<10}{'peer':<20}{'M':>6}{'RMSE/err':>9}{'NLPD':>9}{'elbo':>12}{'loss <=':>9}"
    head += f"{'seconds':>9}{'process':>9}{'predict':>8}{'/ours':>8}{'GiB':>7}{'dev.':>7}"
    rows = f"{args.rows or 'all'} rows, {args.threads} threads" + (f", {args.device}" if args.device else "")
    print(f"{rows}, {args.at_once} at once\n{head}", flush=True)
    found: dict[tuple[str, str], dict[str, Any]] = {}
    which = "seconds" if args.device else "processor"

    def run(job: tuple[str, str]) -> None:
        found[job] = fitted(job, args, free)
        print(row(job, found, which), flush=True)

    with ThreadPoolExecutor(args.at_once) as pool:
        list(pool.map(run, todo))
    if args.at_once > 1:
        print(f"\nin order\n{head}")
        for job in todo:
            print(row(job, found, which))
    said: dict[str, str] = {}
    for each in found.values():
        said.update(each.get("versions", {}))
    print(", ".join(f"{name} {number}" for name, number in sorted(said.items())))
    if args.kernels:
        for job, each in found.items():
            if "kernel" in each:
                print(f"{job[0]:<10}{job[1]:<20}{each['kernel']}")


if __name__ == "__main__":
    main()

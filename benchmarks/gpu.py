"""Dense Gaussian process classification on a GPU, against one Cholesky factorisation on the same device.

    python benchmarks/gpu.py [--device cuda] [--sizes 2000 8000 16000]

Binary labels, 8-dimensional inputs, RBF variance 4, length 2, relative gap 1e-6, float64. The covariance is a torch
tensor; everything stays on its device from input to output. The smallest size is fitted with numpy too, and must agree.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch

import fenchel
from fenchel.likelihoods import BernoulliLogit, MultinomialLogit
from fenchel.priors import DenseCovariance


def synchronise(device: str) -> float:
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return time.perf_counter()


def inputs(n: int, device: str) -> tuple[torch.Tensor, np.ndarray]:
    rng = np.random.default_rng(n)
    X = rng.normal(size=(n, 8))
    score = np.sin(X[:, 0]) + X[:, 1] * X[:, 2]
    y = (score + 0.5 * rng.logistic(size=n) > 0).astype(float)
    points = torch.asarray(X, device=device)
    return 4.0 * torch.exp(-0.5 * torch.cdist(points, points) ** 2 / 4.0), y


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--sizes", type=int, nargs="+", default=[2000, 8000, 16000])
    args = parser.parse_args()
    device = args.device
    name = torch.cuda.get_device_name() if device.startswith("cuda") else "cpu"
    print(f"torch {torch.__version__} on {name}, fenchel {fenchel.__version__}")
    K, y = inputs(min(args.sizes), device)
    here = fenchel.infer(BernoulliLogit("tilted"), DenseCovariance(K.cpu().numpy()), y, tol=1e-6)
    there = fenchel.infer(BernoulliLogit("tilted"), DenseCovariance(K), y, tol=1e-6)
    labels = y + (np.arange(len(y)) % 2)
    K_host = K.cpu().numpy()
    soft = [
        fenchel.infer(MultinomialLogit(3, bound="log-sum"), DenseCovariance(k), labels, tol=1e-6) for k in (K_host, K)
    ]
    assert there.posterior.mean.device.type == torch.device(device).type
    distance = float(np.abs(there.posterior.mean.cpu().numpy() - here.posterior.mean).max())
    print(f"against numpy: elbo differs by {abs(here.elbo - there.elbo):.1e}, means by {distance:.1e};", end=" ")
    print(f"softmax elbo by {abs(soft[0].elbo - soft[1].elbo):.1e}")
    head = f"{'N':>7}{'bound':>9}{'iterations':>12}{'seconds':>10}{'Cholesky s':>12}{'ratio':>8}"
    print(head + f"{'peak/N^2':>10}{'gap':>10}")
    for n in args.sizes:
        K, y = inputs(n, device)
        spd = K + torch.eye(n, dtype=torch.float64, device=device)
        torch.linalg.cholesky(spd)
        began = synchronise(device)
        torch.linalg.cholesky(spd)
        floor = synchronise(device) - began
        del spd
        prior = DenseCovariance(K)
        for bound in ("log-sum", "tilted"):
            if device.startswith("cuda"):
                torch.cuda.empty_cache()
                torch.cuda.reset_peak_memory_stats()
                before = torch.cuda.memory_allocated()
            began = synchronise(device)
            sol = fenchel.infer(BernoulliLogit(bound), prior, y, tol=1e-6)
            seconds = synchronise(device) - began
            peak = (torch.cuda.max_memory_allocated() - before) / (8 * n * n) if device.startswith("cuda") else np.nan
            if not sol.converged:
                raise SystemExit(sol.status)
            row = f"{n:>7}{bound:>9}{sol.n_iter:>12}{seconds:>10.3f}{floor:>12.4f}{seconds / floor:>8.1f}"
            print(row + f"{peak:>10.2f}{sol.gap:>10.1e}", flush=True)
            del sol


if __name__ == "__main__":
    main()

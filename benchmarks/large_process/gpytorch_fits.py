"""GPyTorch's processes: SGPR and SVGP as its notebooks train them, the same with a better kernel and longer, and exact.

All are in float32. The notebooks, with an RBF of one length and the first rows as points, are

    SGPR_Regression_CUDA      SGD with rate 0.1, 50 steps
    SVGP_Regression_CUDA      Adam with rate 0.01, batches of 1,024, four epochs
    Simple_GP_Regression      Adam with rate 0.1, 50 steps

"-ard" has a Matern of 3/2 with a length for each column, as ours, and steps of Adam: 100 with rate 0.1 (SGPR), 50 with
rate 0.1 (exact), 50 epochs with rate 0.01 (SVGP).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import gpytorch
import numpy as np
import torch
from gpytorch.kernels import InducingPointKernel, MaternKernel, RBFKernel, ScaleKernel

PACKAGES = ("gpytorch", "torch", "linear_operator")
POINTS = 512
BATCH = 1024


def kernel_of(columns: int, ard: bool) -> Any:
    return ScaleKernel(MaternKernel(nu=1.5, ard_num_dims=columns) if ard else RBFKernel())


class Exact(gpytorch.models.ExactGP):
    def __init__(self, X: Any, y: Any, likelihood: Any, kernel: Any) -> None:
        super().__init__(X, y, likelihood)
        self.mean_module, self.covar_module = gpytorch.means.ConstantMean(), kernel

    def forward(self, x: Any) -> Any:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


class Variational(gpytorch.models.ApproximateGP):
    def __init__(self, points: Any, kernel: Any) -> None:
        q = gpytorch.variational.CholeskyVariationalDistribution(points.size(0))
        strategy = gpytorch.variational.VariationalStrategy(self, points, q, learn_inducing_locations=True)
        super().__init__(strategy)
        self.mean_module, self.covar_module = gpytorch.means.ConstantMean(), kernel

    def forward(self, x: Any) -> Any:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def tensors(device: str | None, *arrays: np.ndarray) -> list[Any]:
    return [torch.as_tensor(x, dtype=torch.float32, device=device or "cpu") for x in arrays]


def predictor(model: Any, likelihood: Any, labels: bool, device: str | None) -> Any:
    """(mean, sd) of y, or the probability of 1, in batches."""
    model.eval()
    likelihood.eval()

    def predict(X: np.ndarray) -> tuple[np.ndarray, ...]:
        parts = []
        with torch.no_grad(), gpytorch.settings.fast_pred_var():
            for some in np.array_split(X, 1 + len(X) // BATCH):
                found = likelihood(model(tensors(device, some)[0]))
                values = (found.mean,) if labels else (found.mean, found.variance.sqrt())
                parts.append([value.double().cpu().numpy() for value in values])
        return tuple(np.concatenate(part) for part in zip(*parts, strict=True))

    return predict


def by_marginal(model: Any, likelihood: Any, X: Any, y: Any, optimizer: Any, steps: int) -> float:
    """Steps on the exact marginal likelihood of the model; the last loss."""
    model.train()
    likelihood.train()
    objective, loss = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model), None
    for _ in range(steps):
        optimizer.zero_grad()
        loss = -objective(model(X), y)
        loss.backward()
        optimizer.step()
    return float(loss)


def sgpr(X: np.ndarray, y: np.ndarray, labels: bool, device: str | None, ard: bool = False) -> Any:
    inputs, targets = tensors(device, X, y)
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    kernel = kernel_of(X.shape[1], ard)
    kernel = InducingPointKernel(kernel, inducing_points=inputs[:POINTS].clone(), likelihood=likelihood)
    model = Exact(inputs, targets, likelihood, kernel).to(inputs.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1) if ard else torch.optim.SGD(model.parameters(), lr=0.1)
    loss = by_marginal(model, likelihood, inputs, targets, optimizer, 100 if ard else 50)
    return predictor(model, likelihood, labels, device), {"points": POINTS, "elbo": -loss * len(y)}


def exact(X: np.ndarray, y: np.ndarray, labels: bool, device: str | None, ard: bool = True) -> Any:
    inputs, targets = tensors(device, X, y)
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    model = Exact(inputs, targets, likelihood, kernel_of(X.shape[1], ard)).to(inputs.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    loss = by_marginal(model, likelihood, inputs, targets, optimizer, 50)
    return predictor(model, likelihood, labels, device), {"elbo": -loss * len(y)}


def svgp(X: np.ndarray, y: np.ndarray, labels: bool, device: str | None, ard: bool = False) -> Any:
    inputs, targets = tensors(device, X, y)
    kinds = gpytorch.likelihoods
    likelihood = (kinds.BernoulliLikelihood() if labels else kinds.GaussianLikelihood()).to(inputs.device)
    model = Variational(inputs[:POINTS].clone(), kernel_of(X.shape[1], ard)).to(inputs.device)
    model.train()
    likelihood.train()
    optimizer = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=0.01)
    objective = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(y))
    for _ in range(50 if ard else 4):
        order = torch.randperm(len(y), device=inputs.device)
        for some in order.split(BATCH):
            optimizer.zero_grad()
            loss = -objective(model(inputs[some]), targets[some])
            loss.backward()
            optimizer.step()
    return predictor(model, likelihood, labels, device), {"points": POINTS}


FITS = {
    "gpytorch-sgpr": sgpr,
    "gpytorch-sgpr-ard": partial(sgpr, ard=True),
    "gpytorch-svgp": svgp,
    "gpytorch-svgp-ard": partial(svgp, ard=True),
    "gpytorch-exact-ard": exact,
}
NUMBERS_ALONE = ("gpytorch-sgpr", "gpytorch-sgpr-ard", "gpytorch-exact-ard")

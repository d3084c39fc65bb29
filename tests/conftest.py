"""What the tests share: the registries, drawn from each room's ``__all__``, and slow independent witnesses."""

from __future__ import annotations

import inspect
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from tiers import pytest_addoption, pytest_collection_modifyitems, pytest_configure  # noqa: F401

import fenchel.likelihoods
import fenchel.priors
from fenchel import gates
from fenchel.likelihoods import Likelihood
from fenchel.priors import Prior

# a copy of tests/ beside an installed wheel has no benchmarks, documents and examples
IN_REPOSITORY = (Path(__file__).parent.parent / "benchmarks").is_dir()
OF_THE_REPOSITORY = (
    "accuracy budgets case_studies docs files_hostile fuzz marginal_means models_diagnostics peers site smooths_mgcv"
)
collect_ignore = [] if IN_REPOSITORY else [f"test_{name}.py" for name in OF_THE_REPOSITORY.split()]
reads_repository = pytest.mark.skipif(not IN_REPOSITORY, reason="reads files of the repository beside tests/")

# the same draws in every run of CI, fresh ones at the desk
settings.register_profile(
    "fenchel",
    deadline=None,
    max_examples=25,
    derandomize="CI" in os.environ,
    suppress_health_check=list(HealthCheck),
)
settings.load_profile("fenchel")


@pytest.fixture(scope="session", autouse=True)
def fast_by_default():
    """Fits of formulas are plain ones unless a test asks for more: nothing is done beyond them unasked.

    ``test_models_accuracy.py`` is about the default; commands and examples that run in a process of their own have it.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gates, "UNASKED_SECONDS", 0.0)
        yield


def concrete(room, base):
    """The classes of a room's ``__all__`` that can be made: a new part is tested because it is listed."""
    members = (getattr(room, name) for name in room.__all__)
    return [m for m in members if inspect.isclass(m) and issubclass(m, base) and not inspect.isabstract(m)]


LIKELIHOODS = concrete(fenchel.likelihoods, Likelihood)
PRIORS = concrete(fenchel.priors, Prior)


def examples_of(cls, n=12, seeds=range(40)):
    """Instances of a likelihood with targets, every bound among them."""
    seen = {}
    for seed in seeds:
        likelihood, y = cls.example(np.random.default_rng(seed), n)
        seen.setdefault(likelihood.name + likelihood.bound + str(getattr(likelihood, "reference", "")), (likelihood, y))
    return list(seen.values())


LIKELIHOOD_CASES = [
    pytest.param(likelihood, y, id=f"{likelihood.name}-{likelihood.bound}-{i}")
    for cls in LIKELIHOODS
    for i, (likelihood, y) in enumerate(examples_of(cls))
]

CONVEX_CASES = [case for case in LIKELIHOOD_CASES if case.values[0].objective.convex]
ONE_PREDICTOR = [case for case in LIKELIHOOD_CASES if case.values[0].objective.over_contrasts is None]
EXACT_CASES = [case for case in ONE_PREDICTOR if not case.values[0].objective.convex]


def priors_for(likelihood, n=12, seed=0):
    """Every example prior that is valid for a likelihood."""
    rng = np.random.default_rng(seed)
    out = []
    for cls in PRIORS:
        for prior in cls.example(rng, n, likelihood.n_predictors):
            correlated = prior.n_rows == n * likelihood.n_predictors and likelihood.n_predictors > 1
            if not (correlated and likelihood.objective.needs_independent_predictors):
                out.append(prior)
    return out


def difference(f, x, step=1e-6):
    """Central differences of f, whose value may be an array, along every entry of x: (..., x.size)."""
    x = np.asarray(x, dtype=float)
    columns = []
    for i in range(x.size):
        e = np.zeros(x.size)
        e[i] = step
        e = e.reshape(x.shape)
        columns.append((np.asarray(f(x + e)) - np.asarray(f(x - e))) / (2 * step))
    return np.stack(columns, axis=-1)


def fit_at_start(formula, data, family="poisson", *, tol=1e-10, **options):
    """A model fitted where its search would begin, so that two fits can agree to many digits: nothing is learned, nor
    averaged over.
    """
    from dataclasses import replace

    from fenchel.estimators.latent import fitted_at
    from fenchel.models import FittedModel, Model

    model = Model(formula, data, family, **options)
    prior = model.sum.family()
    found = fitted_at(model.target, prior, prior.theta, weights=model.target.weights, tol=tol)
    found = replace(found, theta=np.r_[prior.theta, model.target.likelihood.theta])
    return FittedModel(model, found, at_theta=True)

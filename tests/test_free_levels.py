"""Free levels integrated out, beside sums over lattices that know nothing of the library."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import gammaln, logsumexp

import fenchel
from fenchel.corrections import correct
from fenchel.corrections.free_levels import split_levels
from fenchel.likelihoods import BernoulliLogit, Poisson
from fenchel.priors import SparsePrecision

LEVELS, WIDE = 7, 100.0
rng = np.random.default_rng(3)
OF = np.repeat(np.arange(LEVELS), 6)
X = rng.normal(size=(OF.size, 2))
Y = np.zeros(OF.size)
Y[::6] = 1.0  # one event a level, two in the first
Y[1] = 1.0
EXPOSURE = rng.uniform(0.5, 2.0, OF.size)
SIZES = np.array([0.8, 1.5])  # prior sds of r


def prior(rows: np.ndarray, wide: float = WIDE) -> SparsePrecision:
    """r, levels that sum to zero, and a level of all: each row's level is N(0, wide^2), independent of the others."""
    W = np.column_stack([X, np.eye(LEVELS)[OF], np.ones(OF.size)])[rows]
    Q = np.r_[1.0 / SIZES**2, np.full(LEVELS, wide**-2), LEVELS * wide**-2]
    C = np.r_[0.0, 0.0, np.ones(LEVELS), 0.0][None, :]
    return SparsePrecision(sp.diags_array(Q, format="csc"), design=W, constraints=C)


def by_lattice(y: np.ndarray, exposure: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """log p(y), means and sds of r, by sums over r and, for each level, over b."""
    line = np.linspace(-7.0, 7.0, 121)
    r = np.stack([v.ravel() for v in np.meshgrid(*(line * s for s in SIZES), indexing="ij")])
    log_p = -0.5 * np.sum((r / SIZES[:, None]) ** 2, axis=0) + 2 * np.log((line[1] - line[0]) / np.sqrt(2 * np.pi))
    b = np.linspace(-60.0, 30.0, 1801)
    log_b = -0.5 * (b / WIDE) ** 2 + np.log((b[1] - b[0]) / (WIDE * np.sqrt(2 * np.pi)))
    for k in range(LEVELS):
        own = k == OF
        S = exposure[own] @ np.exp(X[own] @ r)
        log_p += logsumexp(y[own].sum() * b - np.exp(b) * S[:, None] + log_b, axis=1)
        log_p += y[own] @ (X[own] @ r + np.log(exposure[own])[:, None]) - gammaln(y[own] + 1.0).sum()
    total = logsumexp(log_p)
    p = np.exp(log_p - total)
    mean = r @ p
    return float(total), mean, np.sqrt((r**2) @ p - mean**2)


EVERY = np.arange(OF.size)


def test_evidence_and_marginals_are_those_of_lattices() -> None:
    total, mean, sd = by_lattice(Y, EXPOSURE)
    found = correct(fenchel.infer(Poisson(EXPOSURE), prior(EVERY), Y))
    assert found.method == "free levels"
    assert found.trusted
    assert found.marginals_trusted
    assert "integrated out" in found.status
    assert found.log_evidence_se < 0.02
    assert abs(found.log_evidence - total) < 4.0 * found.log_evidence_se
    latents = found.latents()
    assert np.allclose(latents.mean[:2], mean, atol=0.01)
    assert np.allclose(latents.sd[:2], sd, rtol=0.01)


def test_a_row_that_counts_twice_is_two_rows() -> None:
    twice = np.r_[EVERY, 0, 8]
    weight = np.ones(OF.size)
    weight[[0, 8]] = 2.0
    one = correct(fenchel.infer(Poisson(EXPOSURE), prior(EVERY), Y, weights=weight))
    two = correct(fenchel.infer(Poisson(EXPOSURE[twice]), prior(twice), Y[twice]))
    assert one.method == two.method == "free levels"
    assert one.log_evidence == pytest.approx(two.log_evidence, abs=1e-6)


def test_levels_with_a_prior_that_tells_and_labels_are_expanded() -> None:
    narrow = fenchel.infer(Poisson(EXPOSURE), prior(EVERY, 1.0), Y)
    labels = fenchel.infer(BernoulliLogit("exact"), prior(EVERY, 3.0), (np.arange(OF.size) % 2).astype(float))
    assert correct(narrow).method != "free levels"
    assert correct(labels).method != "free levels"


def test_only_indicators_of_which_each_row_sees_one_are_levels() -> None:
    W, Q = prior(EVERY).design.csr(), prior(EVERY).precision
    small = np.full(Q.shape[0], 1.0)
    found = split_levels(W, Q, small)
    assert found is not None
    assert found.rest.tolist() == [0, 1]
    assert np.array_equal(found.of, OF)
    halved = sp.csr_array(W.toarray() * np.r_[1.0, 1.0, np.full(LEVELS, 0.5), 1.0])
    assert split_levels(halved, Q, small) is None
    assert split_levels(W[:, :-3], Q[:-3][:, :-3], small[:-3]) is None  # rows of the last levels see none

"""Linear algebra counted in the trace, against the compiled loops and LAPACK counted from outside."""

import threading
from collections import Counter

import numpy as np
import pytest
import scipy.linalg.lapack
import scipy.sparse as sp

import fenchel
from fenchel import gmrf
from fenchel.hyperparameters import learn
from fenchel.likelihoods import BernoulliLogit, Gaussian, Poisson
from fenchel.linalg import _leaf_passes, _multifrontal, _sandwich
from fenchel.linalg.machine import counted, counting, note
from fenchel.priors import DenseCovariance, SparsePrecision


@pytest.fixture(autouse=True)
def no_dense_chains(monkeypatch):
    """Small matrices by the backends of large ones."""
    monkeypatch.setattr("fenchel.linalg.chain.ONE_BLOCK", 0)
    monkeypatch.setattr("fenchel.gates.CHAIN_ROWS", 0)


KINDS = {
    (_multifrontal, "factorise"): "factorisations",
    (_leaf_passes, "eliminate"): "factorisations",
    (_multifrontal, "invert"): "inverses",
    (_leaf_passes, "selected"): "inverses",
    (_sandwich, "sandwich"): "products",
    (_leaf_passes, "sandwich"): "products",
}


@pytest.fixture
def seen(monkeypatch):
    """How often each compiled loop ran."""
    out = Counter()

    def watched(made, kind):
        return lambda *args: out.update([kind]) or made(*args)

    for (module, name), kind in KINDS.items():
        monkeypatch.setattr(module, name, watched(getattr(module, name), kind))
    return out


def lattice(k):
    T = sp.diags_array([-np.ones(k - 1), 2 * np.ones(k), -np.ones(k - 1)], offsets=[-1, 0, 1])
    return sp.csc_array(sp.kron(T, sp.eye_array(k)) + sp.kron(sp.eye_array(k), T) + 0.3 * sp.eye_array(k * k))


def crossed(rng, n=400):
    rows = np.arange(n)
    parts = [sp.csr_array((np.ones(n), (rows, rng.integers(0, m, n))), shape=(n, m)) for m in (60, 9)]
    return SparsePrecision(sp.eye_array(69, format="csc"), design=sp.hstack(parts, format="csr"))


@pytest.mark.parametrize("kind", ["lattice", "crossed"])
def test_the_last_row_of_the_trace_counts_the_fit(seen, kind):
    rng = np.random.default_rng(0)
    prior = SparsePrecision(lattice(12)) if kind == "lattice" else crossed(rng)
    prior.pattern  # noqa: B018  what is analysed and factorised before a fit is not the fit's
    y = (rng.random(prior.n_rows) < 0.5).astype(float)
    seen.clear()
    sol = fenchel.infer(BernoulliLogit("tilted"), prior, y)
    for name in ("factorisations", "inverses", "products"):
        column = sol.trace[name]
        assert column[-1] == seen[name]
        assert (np.diff(column) >= 0).all()
    assert sol.trace["factorisations"][0] >= 1
    assert sol.trace["factorisations"][-1] >= 2 * sol.n_iter  # of each step's curvature and of where it ends
    assert list(sol.trace.to_frame()["inverses"]) == list(sol.trace["inverses"])


def test_a_learned_fit_gives_the_total(seen):
    rng = np.random.default_rng(1)
    code = rng.integers(0, 20, 300)
    family = gmrf.stack([(gmrf.iid(20), code)], fixed=rng.normal(size=(300, 1)))
    found = learn(Poisson(), family, rng.poisson(2.0, 300).astype(float))
    assert found.n_evaluations > 1
    assert (found.n_factorisations, found.n_inverses, found.n_products) == tuple(
        seen[name] for name in ("factorisations", "inverses", "products")
    )
    assert found.n_factorisations > found.solution.trace["factorisations"][-1]


def test_dense_fits_count_what_lapack_factorises(monkeypatch):
    made, count = scipy.linalg.lapack.dpotrf, []
    prior = DenseCovariance(np.exp(-0.5 * np.subtract.outer(np.arange(12.0), np.arange(12.0)) ** 2) + np.eye(12))
    y = np.arange(12.0) % 3
    fenchel.infer(Poisson(), prior, y)
    monkeypatch.setattr(scipy.linalg.lapack, "dpotrf", lambda *a, **k: count.append(1) or made(*a, **k))
    sol = fenchel.infer(Poisson(), prior, y)
    assert sol.trace["factorisations"][-1] == len(count) > 0
    assert sol.trace["inverses"][-1] == sol.trace["products"][-1] == 0


def test_blocks_nest_and_threads_do_not_mix():
    assert counted().factorisations == 0
    note(factorisations=3)  # nobody listens
    with counting() as outer:
        note(factorisations=1)
        with counting() as inner:
            note(factorisations=1, products=2)
            other = threading.Thread(target=lambda: note(inverses=5))
            other.start()
            other.join()
        assert counted() is outer
    assert (inner.factorisations, inner.inverses, inner.products) == (1, 0, 2)
    assert (outer.factorisations, outer.inverses, outer.products) == (2, 0, 2)


def test_a_gaussian_fit_needs_one_factorisation():
    prior = crossed(np.random.default_rng(2))
    prior.pattern  # noqa: B018
    sol = fenchel.infer(Gaussian(0.5), prior, np.random.default_rng(3).normal(size=400))
    assert sol.trace["factorisations"][-1] == 1

"""Several groups a row, and groups of known covariance: against dense algebra."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.stats import multivariate_normal

import fenchel
from fenchel.hyperparameters import learn
from fenchel.terms import DataTable, KnownCovariance, MultipleMembership, SumOfTerms

RNG = np.random.default_rng(4)
N = 60
MEMBERS = {"a": RNG.choice(list("pqrs"), N), "b": RNG.choice(list("qrst"), N), "v": RNG.uniform(0, 1, N)}
MEMBERS["w"] = 1.0 - MEMBERS["v"]


def pedigree(n=40):
    """Additive relationships of n animals, the parents of each drawn among those before it, and its sparse inverse."""
    rng = np.random.default_rng(1)
    A, T = np.eye(n), np.eye(n)
    D = np.ones(n)
    for i in range(6, n):
        s, d = rng.choice(i, 2, replace=False)
        A[i, :i] = A[:i, i] = (A[s, :i] + A[d, :i]) / 2
        A[i, i] = 1.0 + A[s, d] / 2
        T[i, s] = T[i, d] = -0.5
        D[i] = A[i, i] - (A[s, s] + A[d, d] + 2 * A[s, d]) / 4
    return A, sp.csc_array(T.T @ np.diag(1 / D) @ T)


def logpdf(covariance, y):
    return multivariate_normal(np.zeros(y.size), covariance).logpdf(y)


def test_memberships_share_a_row():
    y = RNG.normal(size=N)
    for weights, shares in ((None, np.full((N, 2), 0.5)), (("v", "w"), np.stack([MEMBERS["v"], MEMBERS["w"]], axis=1))):
        model = SumOfTerms([MultipleMembership("a", "b", weights=weights)], DataTable("here", MEMBERS))
        assert model.effects[0].name == "mm(a, b)"
        assert model.effects[0].levels == list("pqrst")
        indicator = lambda column: (column[:, None] == np.array(list("pqrst"))).astype(float)
        W = shares[:, :1] * indicator(MEMBERS["a"]) + shares[:, 1:] * indicator(MEMBERS["b"])
        sol = fenchel.infer(fenchel.Gaussian(0.3), model.family().at([np.log(0.8)]), y)
        assert sol.elbo == pytest.approx(logpdf(0.64 * W @ W.T + 100.0 + 0.3 * np.eye(N), y), abs=1e-6)


def test_new_members():
    term = MultipleMembership("a", "b", weights=("v", "w")).read(DataTable("here", MEMBERS), 1.0)
    new = DataTable(
        "here", {"a": ["zz", "zz", "p"], "b": ["zz", "yy", None], "v": [1.0, 1.0, 2.0], "w": [3.0, 3.0, 0.0]}
    )
    rows = term.rows(new, new=True)
    S = term.population(np.array([0.0]))
    np.testing.assert_allclose(np.einsum("nd,de,ne->n", rows.unseen, S, rows.unseen), [1.0, 0.0625 + 0.5625, 0.0])
    np.testing.assert_allclose(rows.design.toarray(), [[0] * 5, [0] * 5, [1, 0, 0, 0, 0]])
    with pytest.raises(ValueError, match=r"here: the weights of 'mm\(a, b\)' in row 0 are \[0.0, 0.0\]; expected"):
        term.rows(DataTable("here", {"a": ["p"], "b": ["q"], "v": [0.0], "w": [0.0]}), new=True)


def test_a_pedigree_by_its_covariance_and_by_its_sparse_inverse():
    A, P = pedigree()
    n, y = A.shape[0], np.random.default_rng(0).normal(size=80)
    names = [f"cow {i}" for i in range(n)]
    who = np.random.default_rng(0).choice(names[:30], 80)  # ten have no records
    table = DataTable("here", {"who": who})
    frame = pd.DataFrame(A, index=names, columns=names)
    models = [
        SumOfTerms([term], table)
        for term in (
            KnownCovariance("who", frame),
            KnownCovariance("who", A, labels=names),
            KnownCovariance("who", precision=P, labels=names),
        )
    ]
    structure = models[0].effects[0].matrix
    assert structure.nnz == P.nnz
    np.testing.assert_allclose(structure.toarray(), P.toarray(), atol=1e-10)
    Z = np.array([[name == w for name in names] for w in who]).astype(float)
    for model in models:
        family = model.family()
        sol = fenchel.infer(fenchel.Gaussian(0.3), family.at(family.theta), y)
        sd = dict(model.effects[0].readable(family.theta))["sd"]
        assert sol.elbo == pytest.approx(logpdf(sd**2 * Z @ A @ Z.T + 100.0 + 0.3 * np.eye(80), y), abs=1e-6)
        new = model.new_rows(family.theta, DataTable("here", {"who": ["cow 35"]}))
        mean, variance = sol.posterior.predict(new)
        S = sd**2 * Z @ A @ Z.T + 100.0 + 0.3 * np.eye(80)
        cross = sd**2 * A[35] @ Z.T + 100.0
        assert mean[0] == pytest.approx(cross @ np.linalg.solve(S, y), abs=1e-6)
        assert variance[0] == pytest.approx(sd**2 * A[35, 35] + 100.0 - cross @ np.linalg.solve(S, cross), abs=1e-6)


def test_heritable_variance_is_learned():
    A, _ = pedigree(300)
    rng = np.random.default_rng(2)
    u = 0.9 * np.linalg.cholesky(A) @ rng.normal(size=300)
    who = np.repeat(np.arange(300), 5)
    y = rng.poisson(np.exp(0.5 + u[who])).astype(float)
    model = SumOfTerms([KnownCovariance("who", A)], DataTable("here", {"who": who}))
    found = learn(fenchel.Poisson(), model.family(), y)
    assert found.converged
    assert dict(model.effects[0].readable(found.theta))["sd"] == pytest.approx(0.9, abs=0.12)


def test_sentences():
    A, _ = pedigree()
    table = DataTable("here", {"who": [0, 41]})
    cases = [
        (
            KnownCovariance("who", A),
            r"here: X\[1, 'who'\] = 41 is unknown to the effect; expected one of 40 levels",
        ),
        (KnownCovariance("who", A[:3]), r"here: the matrix of 'who' has shape \(3, 40\); expected \(n, n\)"),
        (KnownCovariance("who", A, labels=[1, 2]), "here: 2 labels for the 40 rows of the matrix of 'who'"),
        (KnownCovariance("who", np.ones((3, 3))), "here: the covariance of 'who' is not positive definite; expected a"),
        (KnownCovariance("who", np.triu(A)), "here: the covariance of 'who' is not symmetric"),
        (KnownCovariance("who", precision=-np.eye(2)), "here: the precision of 'who' cannot be used"),
        (MultipleMembership("who", "x"), "here: X has no column 'x'"),
    ]
    for term, sentence in cases:
        with pytest.raises(ValueError, match=sentence):
            term.read(table, 1.0).rows(table)
    with pytest.raises(ValueError, match="MultipleMembership: 1 columns; expected two or more"):
        MultipleMembership("a")
    with pytest.raises(ValueError, match="MultipleMembership: 2 columns and 1 weights; expected a column of weights"):
        MultipleMembership("a", "b", weights=["w"])
    with pytest.raises(ValueError, match="KnownCovariance: cov and precision of 'g'; expected one of the two"):
        KnownCovariance("g")

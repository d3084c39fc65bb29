"""Products of terms: space by time of every type, against Kronecker products of dense covariances."""

import numpy as np
import pytest
from conftest import difference
from scipy.stats import multivariate_normal

import fenchel
from fenchel.hyperparameters import learn
from fenchel.linalg import constraint_bases as bases
from fenchel.terms import (
    AR1,
    BYM2,
    ICAR,
    IID,
    RW1,
    RW2,
    DataTable,
    Grouped,
    Interaction,
    KnownCovariance,
    Leroux,
    Seasonal,
    SumOfTerms,
    Wiener,
)

R, T = 7, 6
MAP = np.zeros((R, R))
for a, b in [(0, 1), (1, 2), (2, 3), (3, 0), (1, 3), (4, 5)]:  # two parts, and a region alone
    MAP[a, b] = MAP[b, a] = 1.0
KIN = 0.6 ** np.abs(np.arange(R)[:, None] - np.arange(R)) * 3.0
ROWS = {"r": np.repeat(np.arange(R), T), "t": np.tile(2000 + np.arange(T), R)}
TABLE = DataTable("here", ROWS)
PAIRS = {
    "I": (IID("r"), IID("t")),
    "II": (IID("r"), RW1("t")),
    "II, second order": (IID("r"), RW2("t")),
    "III": (ICAR("r", MAP), IID("t")),
    "IV": (ICAR("r", MAP), RW1("t")),
    "IV, second order": (ICAR("r", MAP), RW2("t")),
    "IV, the other way": (RW1("t"), ICAR("r", MAP)),
    "IV, seasonal": (ICAR("r", MAP), Seasonal("t", 3)),
    "ICAR by AR1": (ICAR("r", MAP), AR1("t")),
    "Leroux by RW1": (Leroux("r", MAP), RW1("t")),
    "Leroux by AR1": (Leroux("r", MAP), AR1("t")),
    "kin by walk": (KnownCovariance("r", KIN), Wiener("t")),
    "groups by walk": (Grouped("r"), RW1("t")),
}
every_pair = pytest.mark.parametrize("name", PAIRS)


def start_of(term):
    return np.array([h.start for h in term.hyperparameters])


def held(Q, C):
    """The covariance of N(0, Q^-1) given C z = 0."""
    if C is None:
        return np.linalg.inv(Q)
    _, s, V = np.linalg.svd(np.atleast_2d(C))
    free = V[int((s > 1e-9 * s[0]).sum()) :].T
    return free @ np.linalg.inv(free.T @ Q @ free) @ free.T


def factor_covariance(term, rest):
    """Of a factor at its levels, its typical variance 1."""
    theta = np.r_[0.0, rest]
    return held(term.precision(theta)[0].toarray(), term.constraints) / term.spread


@every_pair
def test_the_covariance_is_a_kronecker_product(name):
    term = Interaction(*PAIRS[name]).read(TABLE, 1.0)
    theta = start_of(term) + 0.2
    theta[0] = np.log(0.7)
    rows = term.rows(TABLE).design.toarray()
    V = rows @ held(term.precision(theta)[0].toarray(), term.constraints) @ rows.T
    cut = 1 + len(term.first.hyperparameters) - 1
    A, B = factor_covariance(term.first, theta[1:cut]), factor_covariance(term.second, theta[cut:])
    by_time = name == "IV, the other way"
    i, j = (ROWS["t"] - 2000, ROWS["r"]) if by_time else (ROWS["r"], ROWS["t"] - 2000)
    np.testing.assert_allclose(V, 0.49 * A[np.ix_(i, i)] * B[np.ix_(j, j)], atol=1e-9)
    assert len(term.shown()[0]) == R * T
    V0 = np.diag(A)[:, None] * np.diag(B)[None, :]
    assert np.exp(np.log(V0).mean()) == pytest.approx(1.0, rel=0.25 if "Leroux" in name else 1e-9)


@every_pair
@pytest.mark.parametrize("few", [0, 1000])
def test_the_evidence_and_its_gradient(name, few, monkeypatch):
    """By a sparse basis of what the constraints leave free, and by conditioning on all of them."""
    monkeypatch.setattr(bases, "_MANY", few)
    rng = np.random.default_rng(0)
    y = rng.normal(size=R * T)
    model = SumOfTerms([Interaction(*PAIRS[name])], TABLE)
    family = model.family()
    term, theta = model.effects[0], family.theta + 0.1
    rows = term.rows(TABLE).design.toarray()
    V = rows @ held(term.precision(theta)[0].toarray(), term.constraints) @ rows.T
    sol = fenchel.infer(fenchel.Gaussian(0.4), family.at(theta), y, tol=1e-12)
    expected = multivariate_normal(np.zeros(y.size), V + 100.0 + 0.4 * np.eye(y.size)).logpdf(y)
    assert sol.elbo == pytest.approx(expected, abs=1e-6)
    numeric = difference(lambda t: fenchel.infer(fenchel.Gaussian(0.4), family.at(t), y).elbo, theta, step=1e-4)
    np.testing.assert_allclose(family.gradient(sol, theta), numeric, atol=1e-5)


def test_constraints_are_independent_and_most_have_a_sparse_basis():
    side = np.arange(12)
    line = (np.abs(side[:, None] - side) == 1).astype(float)
    rows = {"r": np.repeat(side, 40), "t": np.tile(np.arange(40), 12)}
    table = DataTable("here", rows)
    walks = Interaction(IID("r"), RW1("t")).read(table, 1.0)
    assert walks.constraints.shape == (12, 480)
    assert bases.split_local(walks.constraints, walks.precision(np.zeros(1))[0])[0] is None  # they stay
    maps = Interaction(ICAR("r", line), IID("t")).read(table, 1.0)
    assert maps.constraints.shape == (40, 480)
    both = Interaction(ICAR("r", line), RW2("t")).read(table, 1.0)
    assert both.constraints.shape == (12 * 2 + 40 - 2, 480)
    assert np.linalg.matrix_rank(both.constraints) == len(both.constraints)
    for term, left in ((maps, 0), (both, 24)):
        basis, rest = bases.split_local(term.constraints, term.precision(np.zeros(1))[0])
        assert rest.shape == (left, 480)
        assert basis.shape == (480, 480 - len(term.constraints) + left)
        assert basis.nnz <= 2 * basis.shape[1]
        broken = np.abs(term.constraints @ basis.toarray()).max(axis=1) > 1e-12
        assert broken.sum() == left


def test_each_type_is_learned_with_its_main_effects():
    """A product of sd 0.4 over 36 regions and 12 times; and the wrong type explains less."""
    side, steps = 6, 12
    at = np.arange(side**2).reshape(side, side)
    pairs = [
        *zip(at[1:].ravel(), at[:-1].ravel(), strict=True),
        *zip(at[:, 1:].ravel(), at[:, :-1].ravel(), strict=True),
    ]
    grid = np.zeros((side**2, side**2))
    for i, j in pairs:
        grid[i, j] = grid[j, i] = 1.0
    rows = {"r": np.repeat(np.arange(side**2), steps), "t": np.tile(np.arange(steps), side**2)}
    table, rng = DataTable("here", rows), np.random.default_rng(3)
    kinds = {
        "I": Interaction(IID("r"), IID("t")),
        "II": Interaction(IID("r"), RW1("t")),
        "III": Interaction(ICAR("r", grid), IID("t")),
        "IV": Interaction(ICAR("r", grid), RW1("t")),
    }
    elbo = {}
    for truth in ("II", "IV"):
        term = kinds[truth].read(table, 1.0)
        A, B = factor_covariance(term.first, []), factor_covariance(term.second, [])
        root = np.linalg.cholesky(np.kron(A, B) + 1e-10 * np.eye(side**2 * steps))
        y = rng.poisson(np.exp(2.5 + 0.4 * root @ rng.normal(size=side**2 * steps))).astype(float)
        for kind, product in kinds.items():
            model = SumOfTerms([ICAR("r", grid), RW1("t"), product], table)
            found = learn(fenchel.Poisson(), model.family(), y)
            assert found.converged
            elbo[truth, kind] = found.objective
            if kind == truth:
                words = dict(model.effects[2].readable(model.thetas(found.theta)[2][1]))
                assert words["sd"] == pytest.approx(0.4, abs=0.06)
        assert max(kinds, key=lambda kind, truth=truth: elbo[truth, kind]) == truth


def test_new_rows_and_sentences():
    term = Interaction(ICAR("r", MAP), Wiener("t")).read(TABLE, 1.0)
    half = term.rows(DataTable("here", {"r": [2], "t": [2001.5]}), new=True).design.toarray()
    ends = term.rows(DataTable("here", {"r": [2, 2], "t": [2001, 2002]}), new=True).design.toarray()
    np.testing.assert_allclose(half[0], ends.mean(axis=0))
    theta = np.array([np.log(0.7)])
    A = factor_covariance(term.first, [])
    left = 0.49 * A[2, 2] * 0.25 / term.second.unit  # of a walk halfway through a gap of 1
    _, unseen = term.new_rows(theta, DataTable("here", {"r": [2], "t": [2001.5]}))
    assert sum(part.variance[0] for part in unseen) == pytest.approx(left)
    cases = [
        (
            lambda: Interaction("r", IID("t")),
            r'Interaction: first is a str; expected a LevelTerm such as IID\("region"\)',
        ),
        (lambda: Interaction(BYM2("r", MAP), IID("t")).read(TABLE, 1.0), "which is more than one effect a level"),
        (lambda: Interaction(IID("r", by="t"), IID("t")).read(TABLE, 1.0), "which is more than one effect a level"),
        (lambda: Interaction(Grouped("r", "t"), IID("t")).read(TABLE, 1.0), "which is more than one effect a level"),
        (lambda: term.rows(DataTable("here", {"r": [9], "t": [2000]}), new=True), r"X\[0, 'r'\] = 9 is unknown"),
    ]
    for make, sentence in cases:
        with pytest.raises(ValueError, match=sentence):
            make()
    grown = Interaction(IID("r"), RW1("t")).read(TABLE, 1.0)
    with pytest.raises(ValueError, match=r"X\[0, 'r'\] = 9 is unknown"):
        grown.rows(DataTable("here", {"r": [9], "t": [2000]}), new=True)


def implied(unseen):
    """The covariance (N, N) of what rows have beyond the latents of a fit, written out."""
    out = 0.0
    for part in unseen:
        C = np.diag(part.covariance) if part.covariance.ndim == 1 else part.covariance
        W = np.where(part.of[:, None] >= 0, part.weights, 0.0)
        out = out + (W @ C @ W.T) * (part.of[:, None] == part.of[None, :])
    return out


@pytest.mark.parametrize("turned", [False, True])
def test_a_new_time_of_independent_ones_has_a_map_of_its_own(turned):
    """Types I and III beyond their times: the covariance of the map within a new time, none between two."""
    new = DataTable("here", {"r": [0, 2, 0, 4, 1], "t": [2006, 2006, 2007, 2007, 2003]})
    r, ahead = np.array([0, 2, 0, 4, 1]), np.array([True, True, True, True, False])
    same = np.equal.outer([0, 0, 1, 1, 2], [0, 0, 1, 1, 2]) & np.outer(ahead, ahead)
    for space in (IID("r"), ICAR("r", MAP)):
        pair = (IID("t"), space) if turned else (space, IID("t"))
        term = Interaction(*pair).read(TABLE, 1.0)
        rows, unseen = term.new_rows(np.array([np.log(0.7)]), new, ahead=True)
        A = factor_covariance(term.second if turned else term.first, [])
        np.testing.assert_allclose(implied(unseen), 0.49 * A[np.ix_(r, r)] * same, atol=1e-12)
        assert np.diff(rows.design.indptr).tolist() == [0, 0, 0, 0, 1]


def test_a_region_and_a_time_that_are_both_new():
    new = DataTable("here", {"r": [9, 9, 8, 9, 3], "t": [2006, 2006, 2006, 2003, 2006]})
    unseen = Interaction(IID("r"), IID("t")).read(TABLE, 1.0).new_rows(np.array([np.log(0.7)]), new, ahead=True)[1]
    one = np.eye(5)
    one[0, 1] = one[1, 0] = 1.0  # the same cell
    np.testing.assert_allclose(implied(unseen), 0.49 * one, atol=1e-12)
    walks = Interaction(IID("r"), RW1("t")).read(TABLE, 1.0)
    known = DataTable("here", {"r": [9, 9, 8], "t": [2001, 2004, 2004]})
    B = factor_covariance(walks.second, [])[np.ix_([1, 4, 4], [1, 4, 4])]
    B[2, :2] = B[:2, 2] = 0.0
    np.testing.assert_allclose(implied(walks.new_rows(np.array([0.0]), known)[1]), B, atol=1e-9)
    with pytest.raises(ValueError, match="'r x t' is asked beyond both of its factors; expected beyond one"):
        walks.new_rows(np.array([0.0]), DataTable("here", {"r": [9], "t": [2006]}), ahead=True)

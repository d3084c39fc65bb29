"""A hundred of the fuzzer's problems, and the judge itself: complete, independent, and not to be fooled."""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import mpmath
import numpy as np
import pytest

from fenchel.likelihoods import WORDS, Exponential, Interval, Mixed, MultinomialLogit, Poisson, Weibull

PLACE = Path(__file__).parent.parent / "benchmarks"
sys.path.insert(0, str(PLACE))

import fuzz  # noqa: E402
from fuzzing.formula_fits import judge_formula  # noqa: E402
from fuzzing.formulas import draw_formula  # noqa: E402
from fuzzing.judge import judge  # noqa: E402
from fuzzing.models import to_model  # noqa: E402
from fuzzing.optimum import optimum  # noqa: E402
from fuzzing.problems import KINDS, draw  # noqa: E402

sys.path.remove(str(PLACE))  # its sparse.py is not the package of that name, which others look for

BATCH = 10
JUDGE = [
    *("bounds", "covariances", "decimals", "dense_terms", "formulas", "integrals", "judge", "models"),
    *("more_rows", "optimum", "pieces", "witness"),
]


@pytest.mark.parametrize("first", [pytest.param(0, marks=pytest.mark.every_run), *range(BATCH, 100, BATCH)])
def test_no_fit_is_falsely_said_to_have_converged(first):
    wrong = []
    for i in range(first, first + BATCH):
        problem, verdict = fuzz.examine(0, i)
        assert not verdict.reason.startswith("the judge failed")
        if verdict.wrong:
            wrong.append(f"--seed 0 --only {i}: {' '.join(problem.row)}: {'; '.join(verdict.faults)}")
    assert not wrong


@pytest.mark.parametrize("i", range(3, 740, 61))
def test_a_formula_is_the_dense_model_that_the_documentation_says(i):
    problem, verdict = fuzz.examine_formula(0, i)
    assert (verdict.said, verdict.judged) == ("converged", True), f"{problem.formula}: {verdict.reason}"
    assert not verdict.faults, f"--only-formula {i}: {problem.formula}: {'; '.join(verdict.faults)}"


def test_the_dense_model_notices_a_term_that_is_another():
    """A factor of 1.001 in the sd of one term, or a row of another weight, and the evidence is another one."""
    problem = draw_formula(0, 0)
    problem.family, problem.y = "gaussian", np.arange(problem.y.size) % 5 + 0.5
    problem.rows, problem.weights = {}, np.ones(problem.y.size)
    assert not judge_formula(problem).faults
    term = problem.terms[0]
    plain = term.dense
    term.dense = lambda table, w, values: (1.002 * plain(table, w, values)[0], plain(table, w, values)[1])
    assert any("by the dense model" in sentence for sentence in judge_formula(problem).faults)


def test_every_likelihood_and_bound_has_its_turn():
    drawn = set(KINDS)
    others = [
        MultinomialLogit(3),
        Mixed([Poisson()], np.zeros(1, dtype=int)),
        *map(Interval, (Exponential(), Weibull())),
    ]
    known = {(own.name, bound) for own in (*WORDS.values(), *others) for bound in own.bounds}
    elsewhere = {("MultinomialLogit", "exact")}  # several dimensions an observation: test_softmax_exact.py has grids
    modified = {pair for pair in known if pair[0].endswith("NegativeBinomial1")} - {("NegativeBinomial1", "tangent")}
    assert drawn == known - elsewhere - modified
    rows = {draw(0, i).row for i in range(len(KINDS))}
    assert rows == drawn


def test_a_problem_is_reproducible_alone():
    one, two = draw(3, 41), draw(3, 41)
    assert repr(one) == repr(two)
    assert repr(one) != repr(draw(4, 41))


@pytest.mark.parametrize("name", JUDGE)
def test_the_judge_shares_no_code_with_the_library(name):
    assert "fenchel" not in (PLACE / "fuzzing" / f"{name}.py").read_text()


@dataclass
class Said:
    """A solution with some of its numbers changed."""

    honest: object
    changed: dict = field(default_factory=dict)

    def __getattr__(self, name):
        return self.changed.get(name, getattr(self.honest, name))


def ordinary():
    """The first fits that converge without a fault, of several kinds."""
    out, i = [], 0
    while len(out) < 6:
        i += 7
        problem = draw(1, i)
        if problem.prior["kind"] != "dense" or not problem.log_concave or problem.y.size > 4:
            continue
        problem, verdict = fuzz.examine(1, i)
        if verdict.said == "converged" and verdict.judged and not verdict.faults:
            solution, model = fuzz.solve(problem), to_model(problem)
            nowhere = np.full(problem.y.size * problem.C, np.nan)
            alone = optimum(model, nowhere, nowhere)  # from the prior, as where the marginals reported are none
            if solution.gap < 1e-9 and alone is not None and alone.missing() < 1e-12:
                out.append((problem, model, solution))
    return out


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # trial points of the judge's own search
def test_the_judge_is_not_fooled():
    """A wrong elbo, an upper bound that is none, a shifted mean, a wrong variance, a NaN: each is noticed."""
    for problem, model, solution in ordinary():
        tol, scale = problem.ask["tol"], max(1.0, abs(solution.elbo))
        post = solution.posterior
        far = 3.0 * tol * scale + 2.0 * solution.gap
        sd = np.sqrt(post.variance)
        lies = {
            "elbo off": {"elbo": solution.elbo - far, "elbo_upper": solution.elbo + far},
            "above the best": {"elbo": solution.elbo + far, "elbo_upper": solution.elbo + 2.0 * far},
            "above elbo_upper": {"elbo": solution.elbo - far, "elbo_upper": solution.elbo - far, "gap": 0.0},
            "NaN": {"elbo_upper": np.nan},
            "mean": {"posterior": Said(post, {"mean": post.mean + 2.0 * sd}), "gap": 1e-12},
            "variance": {"posterior": Said(post, {"variance": 0.9 * post.variance}), "gap": 1e-12},
            "negative variance": {"posterior": Said(post, {"variance": post.variance * 0.0 - 1e-9})},
            "not finite": {"posterior": Said(post, {"mean": post.mean + np.nan})},
        }
        for fault, lie in lies.items():
            found = judge(model, Said(solution, lie), tol, True).faults
            assert any(fault in sentence for sentence in found), (fault, problem.row, found)


def test_the_judge_knows_regression_in_closed_form():
    """log p(y) = log N(y; mt, S + diag(v)), in mpmath."""
    mpmath.mp.dps = 60
    seen = 0
    for i in range(KINDS.index(("Gaussian", "none")), 40 * len(KINDS), len(KINDS)):
        problem = draw(5, i)
        if problem.prior["kind"] == "sparse" or problem.weights is not None or problem.y.size > 4:
            continue
        model, rows = to_model(problem), [n for n in range(problem.y.size) if not np.isnan(problem.y[n])]
        v = np.broadcast_to(problem.likelihood["variance"], problem.y.shape)
        said = SimpleNamespace(mean=np.zeros(problem.y.size), variance=np.ones(problem.y.size))
        best = optimum(model, said.mean, said.variance).elbo
        S = mpmath.matrix([[mpmath.mpf(str(model.S[a, b])) + (a == b) * mpmath.mpf(v[a]) for b in rows] for a in rows])
        r = mpmath.matrix([mpmath.mpf(problem.y[a]) - mpmath.mpf(str(model.mt[a])) for a in rows])
        if rows:
            quadratic = (r.T * mpmath.lu_solve(S, r))[0]
            want = -(mpmath.log(mpmath.det(S)) + quadratic + len(rows) * mpmath.log(2 * mpmath.pi)) / 2
            assert abs(mpmath.mpf(str(best)) - want) < mpmath.mpf(10) ** -30 * max(1, abs(want))
            seen += 1
    assert seen >= 5

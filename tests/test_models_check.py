"""What to worry about in a fit: each worry is raised where it is, against a refit or a count, and not elsewhere."""

import warnings

import numpy as np
import pandas as pd
import pytest

import fenchel
from fenchel.models import fit_check, residual_tests
from fenchel.models.fit_check import FitCheck
from fenchel.models.remarks import Remark

RNG = np.random.default_rng(11)
N = 120
DATA = pd.DataFrame({"x": RNG.normal(size=N), "g": np.arange(N) % 4, "row": np.arange(N)})
DATA["y"] = 0.5 * DATA.x + np.array([-3.0, 1.0, 2.0, 4.0])[DATA.g] + RNG.normal(size=N)
DATA["count"] = RNG.poisson(np.exp(0.5 + 0.3 * DATA.x))


@pytest.fixture(autouse=True)
def _fewer_sets(monkeypatch):
    """The fewest data sets of which a test can be rare enough; tests/test_models_diagnostics.py makes all of them."""
    monkeypatch.setattr(residual_tests, "_FIRST", 19)
    monkeypatch.setattr(residual_tests, "_ALL", 49)


def fit(formula, family="gaussian", data=DATA, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fenchel.fit(formula, data, family, **options)


def names(found):
    return found.to_frame()["name"].tolist()


def test_a_good_fit_has_nothing_to_worry_about():
    found = fit("count ~ x", "poisson").check()
    assert len(found) == 0
    assert repr(found) == "no problems found"
    assert list(found.to_frame().columns) == ["name", "severity", "sentence", "what_to_do"]
    first = fit("count ~ x", "poisson").summary().split("\n\n")[0]
    assert first.endswith("check: no problem found by the quick checks; call fit.check() for the others")


def test_the_worst_comes_first_and_once():
    found = FitCheck([Remark("a", "x", 1), Remark("b", "y", 3), Remark("a", "x", 1)])
    assert found.sentences == ["B.", "A."]
    assert found.first == "CHECK: b; fit.check() has 1 more"
    assert FitCheck([Remark("s(x): a long tail", "answers", 3)]).sentences == ["s(x): a long tail."]


@pytest.mark.parametrize("options", [{"accuracy": "high"}, {"accuracy": "fast"}])
def test_a_prior_that_decides_is_named_with_what_a_wider_one_gives(options):
    tight, wide = ({"(1|g)": fenchel.PC(sd=sd, alpha=0.01)} for sd in (0.5, 1.0))
    found = fit("y ~ x + (1|g)", priors=tight, **options)
    (text,) = [s for s in found.check().sentences if "depends on its prior" in s]
    assert text.startswith("The sd of (1|g) depends on its prior: with twice its scale it would be ")
    said, was = (float(part.split()[0].rstrip(".")) for part in text.partition(" would be ")[2].split(" instead of "))
    again = fit("y ~ x + (1|g)", priors=wide, **options)

    def middle(one):  # exp of the mean of log sd, or the mode
        return np.exp(one.theta[0] if one.integrated is None else one.integrated.weights @ one.integrated.thetas[:, 0])

    assert was == pytest.approx(middle(found), rel=0.01)
    assert said == pytest.approx(middle(again), rel=0.15)
    assert "depends on its prior" in found.summary().split("\n\n")[0]
    assert "prior" not in names(fit("y ~ x + (1|g)", **options).check())


def test_counts_that_spread_more_than_poisson_are_seen_in_their_predictions():
    spread = DATA.assign(count=RNG.negative_binomial(0.7, 0.1, N))
    (text,) = [s for s in fit("count ~ x", "poisson", spread).check().sentences if "PIT" in s]
    assert "are too certain: y spreads more than the model says (PIT, " in text
    assert "prediction" not in names(fit("count ~ x", "negative-binomial", spread).check())


def test_a_row_that_pulls_is_named():
    far = pd.concat([DATA, pd.DataFrame({"x": [25.0], "g": [0], "y": [-40.0]})], ignore_index=True)
    found = fit("y ~ x", data=far).check()
    assert any(text.startswith(f"The row {N} ") for text in found)


def test_a_gaussian_that_falls_short_says_by_how_much():
    rng = np.random.default_rng(1)
    g = np.repeat(np.arange(80), 4)
    data = pd.DataFrame({"g": g, "b": (2.5 * rng.normal(size=80)[g] + rng.logistic(size=320) > 0).astype(int)})
    plain = fit("b ~ (1|g)", "bernoulli", data, accuracy="fast")
    short = plain.solution.corrected().log_evidence - plain.elbo
    (text,) = [s for s in plain.check().sentences if "falls short" in s]
    assert f"by {short:.2g} nats" in text
    assert "correction" not in names(fit("b ~ (1|g)", "bernoulli", data, accuracy="high").check())


def test_separation_and_groups_of_one_row_are_among_them():
    data = DATA.assign(b=(DATA.x > 0).astype(int))
    assert "separation" in names(fit("b ~ x", "bernoulli", data).check())
    assert "groups" in names(fit("y ~ x + (1|row)", data=DATA).check())


def test_every_kind_of_model_answers():
    data = DATA.assign(
        kind=RNG.choice(list("abc"), N), level=RNG.integers(0, 3, N), time=RNG.exponential(size=N), event=1,
        extra=np.where(RNG.random(N) < 0.3, 0, DATA["count"] + 1),
    )  # fmt: skip
    for formula, family, options in (
        ("kind ~ x", "multinomial", {}),
        ("level ~ x", "ordinal", {}),
        ("cens(time, event) ~ x", "cox", {}),
        ("extra ~ x + (1|row)", "hurdle-poisson", {"zero": "~ x"}),
        ("y ~ x + (1|g) + (1|row)", "gaussian", {"engine": "iterative"}),
    ):
        found = fit(formula, family, data, **options).check()
        assert found.sentences == list(found)
        assert len(found.to_frame()) == len(found)


def test_large_fits_say_that_no_data_sets_were_made(monkeypatch):
    wild = DATA.assign(y=np.random.default_rng(2).standard_t(1.2, N))
    found = fit("y ~ x", data=wild, accuracy="fast")
    assert found.check().untested == ""
    monkeypatch.setattr(fit_check, "_TESTED", N)
    large = found.check()
    assert "prediction" in names(large)
    assert repr(large).splitlines()[-1] == f"with more than {N} rows and latents no data sets were drawn: " + (
        "fit.residual_tests()"
    )
    times = DATA.assign(time=np.arange(1.0, N + 1.0), event=1)
    assert fit("cens(time, event) ~ x", "cox", times).check().untested == ""  # has no tests of residuals at all


# -- ten models that are right, and ten that are wrong -------------------------------------------------------
def drawn(kind, seed):
    """A table with its formula and family, of which the model is right."""
    rng = np.random.default_rng([seed, 3])
    g = np.repeat(np.arange(20), 10)
    x, u = rng.normal(size=g.size), rng.normal(size=20)
    eta = 0.5 + 0.5 * x + 0.6 * u[g]
    t = np.sort(rng.uniform(0, 1, g.size))
    data = pd.DataFrame({"g": g, "x": x, "t": t, "trials": 12})
    p = 1.0 / (1.0 + np.exp(-eta))
    end = rng.exponential(size=g.size) ** (1 / 1.5) * np.exp(-eta / 1.5)
    own = {
        "line": ("y ~ x", "gaussian", 0.5 * x + rng.normal(size=g.size)),
        "groups": ("y ~ x + (1|g)", "gaussian", eta + rng.normal(size=g.size)),
        "smooth": ("y ~ s(t)", "gaussian", np.sin(6 * t) + 0.5 * rng.normal(size=g.size)),
        "counts": ("y ~ x + (1|g)", "poisson", rng.poisson(np.exp(eta))),
        "dispersed": ("y ~ x + (1|g)", "negative-binomial", rng.negative_binomial(2.0, 2.0 / (2.0 + np.exp(eta)))),
        "labels": ("y ~ x + (1|g)", "bernoulli", (rng.random(g.size) < p).astype(int)),
        "shares": ("y | trials(12) ~ x + (1|g)", "binomial", rng.binomial(12, p)),
        "levels": ("y ~ x + (1|g)", "ordinal", np.digitize(eta + rng.logistic(size=g.size), [-1.0, 1.0])),
        "durations": ("cens(y, event) ~ x + (1|g)", "weibull", np.minimum(end, 2.0)),
        "heavy": ("y ~ x", "student-t", 0.5 * x + rng.standard_t(4, g.size)),
    }
    formula, family, y = own[kind]
    return formula, family, data.assign(y=y, event=(end < 2.0).astype(int))


RIGHT = ["line", "groups", "smooth", "counts", "dispersed", "labels", "shares", "levels", "durations", "heavy"]


@pytest.mark.parametrize("kind", RIGHT)
def test_right_models_raise_nothing(kind):
    formula, family, data = drawn(kind, 1)
    assert names(fit(formula, family, data, accuracy="high").check()) == []


def wrong(kind):
    """Formula, family, table and options of a model that is not right, and what is to be named."""
    rng = np.random.default_rng(7)
    _, _, data = drawn("counts", 2)
    n, eta, row = len(data), 0.5 + 0.5 * data.x.to_numpy(), np.arange(len(data))
    p = 1.0 / (1.0 + np.exp(-eta - 1.2 * rng.normal(size=n)))
    zero = np.where(rng.random(n) < 0.3, 0, rng.poisson(np.exp(eta + 1.0)))
    far = np.where(row == 17, 60.0, eta + rng.normal(size=n))
    varied = rng.poisson(np.exp(eta + 0.6 * rng.normal(size=n)))
    tight = {"priors": {"(1|g)": fenchel.PC(sd=0.1, alpha=0.01)}}
    steep = (3.0 * rng.normal(size=50)[row // 4] + rng.logistic(size=n) > 0).astype(int)
    return {
        "overdispersed": ("y ~ x", "poisson", data.assign(y=varied), "spread"),
        "shares": ("y | trials(12) ~ x", "binomial", data.assign(y=rng.binomial(12, p)), "spread"),
        "underdispersed": ("y ~ x", "poisson", data.assign(y=np.round(np.exp(eta + 1.0))), "spread"),
        "zeros": ("y ~ x", "negative-binomial", data.assign(y=zero), "zeros"),
        "tails": ("y ~ x", "gaussian", data.assign(y=eta + rng.standard_t(1.5, n)), "prediction"),
        "skewed": ("y ~ x", "gaussian", data.assign(y=np.exp(1.2 * rng.normal(size=n))), "prediction"),
        "separated": ("y ~ x", "bernoulli", data.assign(y=(data.x > 0).astype(int)), "separation"),
        "rows": ("y ~ x + (1|row)", "gaussian", data.assign(y=eta + rng.normal(size=n), row=row), "groups"),
        "prior": ("y ~ x + (1|g)", "gaussian", data.assign(y=far + 2.0 * (data.g % 2)), "prior", tight),
        "outlier": ("y ~ x", "poisson", data.assign(y=np.where(row == 17, 90, rng.poisson(np.exp(eta)))), "rows"),
        "Gaussian": ("y ~ (1|k)", "bernoulli", data.assign(y=steep, k=row // 4), "correction", {"accuracy": "fast"}),
        "outlying": ("y ~ x", "gaussian", data.assign(y=far, x=data.x.where(row != 17, 9.0)), "rows"),
    }[kind]  # fmt: skip


WRONG_ONES = (
    "overdispersed", "shares", "underdispersed", "zeros", "tails", "skewed", "separated", "rows", "prior", "outlier",
    "Gaussian", "outlying",
)  # fmt: skip


def test_a_summary_names_overdispersion():
    formula, family, data, _ = wrong("overdispersed")
    (line,) = [row for row in fit(formula, family, data).summary().splitlines() if row.startswith("check:")]
    assert "as much as the family says" in line
    assert "overdispersed" in line
    formula, family, data = drawn("counts", 1)
    assert "check: no problem found by the quick checks" in fit(formula, family, data).summary()


def in_pieces(seed, n=60):
    """Exponential times, censored at 8, cut at whole numbers: y is 1 in the piece that ended with the event."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    end = rng.exponential(4.0 * np.exp(-0.5 * x))
    pieces = []
    for begin in range(8):
        time = np.minimum(end, begin + 1.0) - begin
        piece = pd.DataFrame({"x": x, "time": time, "y": (end <= begin + 1.0).astype(int)})
        pieces.append(piece[time > 0.0])
    return pd.concat(pieces)


@pytest.mark.parametrize("seed", range(2))
def test_short_pieces_of_time_are_not_overdispersed(seed):
    found = fit("y ~ x", "poisson", in_pieces(seed), exposure="time", accuracy="fast")
    assert "check: no problem found by the quick checks" in found.summary()
    assert names(found.check()) == []


def test_overdispersion_beside_tiny_counts_is_seen():
    rng = np.random.default_rng(3)
    time = np.where(np.arange(400) < 200, 3.0, 1e-4)
    data = pd.DataFrame({"y": rng.poisson(time * rng.gamma(4.0, 0.25, 400)), "time": time})
    assert "spread" in names(fit("y ~ 1", "poisson", data, exposure="time", accuracy="fast").check())


@pytest.mark.parametrize("kind", WRONG_ONES)
def test_wrong_models_are_named(kind):
    formula, family, data, name, *more = wrong(kind)
    options = {"accuracy": "high", **(more[0] if more else {})}
    assert name in names(fit(formula, family, data, **options).check())

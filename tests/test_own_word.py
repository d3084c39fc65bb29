"""A likelihood with a word of its own in one file and one line: formulas, estimators, messages and files know it."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from conftest import reads_repository

import fenchel
from fenchel.likelihoods import WORDS, Gamma, NegativeBinomial, Parameter, ZeroInflated, named, register

ROOT = Path(__file__).parent.parent
TOY = '''"""Amounts of mean e^eta and shape k."""

from .exponential_family import Gamma


class Toy(Gamma):
    """Gamma under another name."""

    word, aliases = "toy", ("toyfamily",)
'''
USE = """
import numpy as np, pandas as pd, fenchel
rng = np.random.default_rng(0)
data = pd.DataFrame({"x": rng.normal(size=80), "g": np.repeat(np.arange(8), 10)})
data["y"] = rng.gamma(2.0, np.exp(0.5 * data.x) / 2.0)
fit = fenchel.fit("y ~ x + (1|g)", data, family="toy_family", dispersion="~ x")
same = fenchel.fit("y ~ x + (1|g)", data, family="gamma", dispersion="~ x")
assert type(fit.likelihood).__name__ == "Toy" and abs(fit.elbo - same.elbo) < 1e-8
assert "toy" in fit.summary()
fit.save("fit.fenchel")
back = fenchel.load("fit.fenchel")
new = data.head(3)
assert np.allclose(back.predict(new), fit.predict(new), rtol=1e-12)
assert np.allclose(fit.predict(new, interval=0.9)["lower"], same.predict(new, interval=0.9)["lower"], rtol=1e-6)
model = fenchel.BayesianLinearRegression(likelihood="toy").fit(data[["x"]], data.y)
assert np.isfinite(model.predict(data[["x"]])).all()
table = fenchel.ProbabilisticPCA(1, likelihood=["toy", "gaussian"]).fit(data[["y", "x"]])
assert table.columns_[0].kind == "toy"
for call, said in (
    (lambda: fenchel.fit("y ~ x", data, family="toys"), "toy"),
    (lambda: fenchel.fit("y ~ x", data, family="poisson", dispersion="~ x"), "one of .*toy"),
    (lambda: fenchel.fit("y ~ x", data, family="toy", trials=3), 'trials was given with likelihood="toy"'),
    (lambda: fenchel.fit("y ~ x", data.assign(y=-1.0), family="toy"), "Toy: y"),
):
    try:
        call()
    except ValueError as error:
        import re
        assert re.search(said, str(error)), error
    else:
        raise AssertionError(said)
print("known")
"""


@reads_repository
def test_a_likelihood_with_its_word_is_two_files(tmp_path):
    """A copy of the package with one file more and one line in another."""
    import shutil

    shutil.copytree(ROOT / "src" / "fenchel", tmp_path / "fenchel", ignore=shutil.ignore_patterns("__pycache__"))
    room = tmp_path / "fenchel" / "likelihoods"
    (room / "toy.py").write_text(TOY)
    with (room / "__init__.py").open("a") as listing:
        listing.write("from .toy import Toy; register(Toy())\n")
    run = subprocess.run(
        [sys.executable, "-c", USE], capture_output=True, text=True, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}
    )
    assert run.stdout.strip() == "known", run.stderr


@pytest.fixture
def words():
    before = dict(WORDS)
    yield
    WORDS.clear()
    WORDS.update(before)


def test_a_word_from_outside(words):
    class Amounts(Gamma):
        word, aliases = "amounts", ("money",)

    register(Amounts())
    assert named("money") is WORDS["amounts"]
    assert isinstance(fenchel.likelihoods.named("amounts"), Amounts)
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"x": rng.normal(size=50)})
    data["y"] = rng.gamma(2.0, np.exp(data.x))
    fits = [fenchel.fit("y ~ x", data, family=family) for family in ("Money", "gamma")]
    assert fits[0].elbo == pytest.approx(fits[1].elbo, abs=1e-8)


def test_a_word_is_said_once(words):
    class Twice(Gamma):
        word, aliases = "twice", ("nbinom2",)

    with pytest.raises(ValueError, match="'nbinom2' is 'negative-binomial' already"):
        register(Twice())
    with pytest.raises(ValueError, match="has no word"):
        register(fenchel.MultinomialLogit(3))


@pytest.mark.parametrize(
    ("spelling", "word"),
    [
        ("ZIP", "zero-inflated-poisson"),
        ("zero_inflated_negbinomial", "zero-inflated-negative-binomial"),
        ("truncated_nbinom2", "truncated-negative-binomial"),
        ("truncated_nbinom1", "truncated-negative-binomial-1"),
        ("hurdle_negbinomial", "hurdle-negative-binomial"),
        ("betar", "beta"),
        ("cumulative", "ordinal"),
    ],
)
def test_names_of_other_software(spelling, word):
    assert named(spelling) is WORDS[word]


def test_a_modifier_hands_over_what_is_its_bases():
    own = ZeroInflated(NegativeBinomial(2.0, [1.0, 3.0]), 0.2)
    assert (own.size, own.word, own.name) == (2.0, "zero-inflated-negative-binomial", "ZeroInflatedNegativeBinomial")
    assert [p.attribute for p in own.parameters] == ["size", "probability"]
    other = own.with_theta(np.array([0.0, 0.0])).take([1])
    assert (other.size, other.probability, list(other.exposure)) == (1.0, 0.5, [3.0])
    assert own.base.size == 2.0
    assert all(isinstance(p, Parameter) for p in own.parameters)
    with pytest.raises(AttributeError, match="no attribute 'dispersion'"):
        _ = own.dispersion
    with pytest.raises(ValueError, match=r"ZeroInflated: base is Gamma\(\); expected counts with an exposure"):
        ZeroInflated(fenchel.Gamma(1.0))


@pytest.mark.parametrize(
    "likelihood",
    [
        fenchel.BernoulliLogit(),
        fenchel.Binomial(3),
        fenchel.Ordinal([0.0, 1.0]),
        fenchel.MultinomialLogit(3),
        fenchel.NegativeBinomial(2.0),
    ],
    ids=lambda own: own.name,
)
def test_the_default_bound_is_the_best(likelihood):
    """As in families: the paper's has to be asked for, and says less of the same data."""
    assert likelihood.bound == likelihood.tightest == "exact"
    S, y = 4.0 * np.exp(-np.abs(np.subtract.outer(np.arange(6), np.arange(6))) / 3.0), np.array([0, 1, 1, 0, 1, 0])
    fits = [
        fenchel.infer(own, fenchel.DenseCovariance(S), y) for own in (likelihood, likelihood.changed(bound="log-sum"))
    ]
    assert all(fit.converged for fit in fits)
    assert fits[0].elbo > fits[1].elbo + 0.1

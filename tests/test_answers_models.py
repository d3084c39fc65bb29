"""Every kind of model, and everything that its fit answers, held against the numbers of an earlier tree.

    python tests/test_answers_models.py --store            writes tests/answers_models.json from the tree at hand
    python tests/test_answers_models.py --store integrated Cox      of some models alone

A change of form changes no answer: the maximum of a search agrees to 3e-8, what is read off at theta, which a search
finds within its tolerance, to 1e-5. Draws depend on the order of a factorisation: the mean of 400 is within 5 standard
errors of the posterior mean. Where a kind of fit refuses a question, the refusal is the answer. A change of substance
stores anew, and says why.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fenchel
from fenchel.checks import Refusal

STORED = Path(__file__).parent / "answers_models.json"
CLOSE = 3e-8  # of what a search maximises
FARTHEST = 5.0  # standard errors of the mean of draws
SEARCHED = 1e-5  # of what a search, an integration over theta or draws give
MAP = {k: [j for j in (k - 1, k + 1, k - 4, k + 4) if 0 <= j < 12 and abs(j % 4 - k % 4) < 2] for k in range(12)}


def rows(seed: int = 0, n: int = 48) -> pd.DataFrame:
    """A table with a column of every kind."""
    rng = np.random.default_rng(seed)
    out = pd.DataFrame({"x": rng.normal(size=n), "z": rng.uniform(0.0, 10.0, n)})
    for name, levels in (("g", 8), ("h", 5)):
        out[name] = [f"{name}{k}" for k in rng.permutation(np.arange(n) % levels)]
    out["t"], out["r"] = np.arange(n) % 12, rng.permutation(np.arange(n) % 12)
    out["when"] = np.sort(rng.uniform(0.0, 30.0, n))
    out["lon"], out["lat"] = rng.uniform(0.0, 4.0, n), rng.uniform(0.0, 3.0, n)
    out["f"] = pd.Categorical(rng.choice(["low", "mid", "top"], n), ["low", "mid", "top"])
    eta = 0.5 * out.x + np.sin(out.z) + 0.6 * rng.normal(size=8)[out.g.str[1:].astype(int)]
    out["real"] = eta + 0.5 * rng.normal(size=n)
    out["count"] = rng.poisson(np.exp(0.5 * eta + 0.7))
    out["label"] = np.where(rng.logistic(size=n) < eta, "yes", "no")
    out["n"] = rng.integers(2, 9, n)
    out["wins"] = rng.binomial(out.n, 1.0 / (1.0 + np.exp(-eta)))
    out["amount"], out["died"] = rng.gamma(2.0, np.exp(0.4 * eta) / 2.0), rng.integers(0, 4, n) > 0
    out["share"] = np.clip(rng.beta(3.0, 2.0, n), 0.02, 0.98)
    out["level"] = np.digitize(eta + rng.logistic(size=n), [-0.8, 0.8])
    out["kind"] = np.array(["a", "b", "c"])[
        np.argmax(rng.gumbel(size=(n, 3)) + np.outer(eta, [0.0, 0.5, -0.5]), axis=1)
    ]
    out["zeros"], out["some"] = out["count"] * (rng.random(n) < 0.7), np.maximum(out["count"], 1)
    out["rain"] = np.where(rng.random(n) < 0.3, 0.0, out.amount)
    out["w"] = rng.integers(1, 3, n)
    return out


DATA, NEW = rows(), rows(1, 5)
FAMILIES = {
    **dict.fromkeys(("gaussian", "student-t", "laplace", "logistic"), "real"),
    **dict.fromkeys(("poisson", "negative-binomial", "negative-binomial-1"), "count"),
    **dict.fromkeys(("zero-inflated-poisson", "zero-inflated-negative-binomial"), "zeros"),
    **dict.fromkeys(("hurdle-poisson", "hurdle-negative-binomial"), "zeros"),
    **dict.fromkeys(("truncated-poisson", "truncated-negative-binomial"), "some"),
    **dict.fromkeys(("bernoulli", "probit"), "label"),
    **dict.fromkeys(("binomial", "beta-binomial"), "wins"),
    **dict.fromkeys(("exponential", "weibull", "cox"), "cens(amount, died)"),
    **dict.fromkeys(("ordinal", "ordinal-probit"), "level"),
    **{"beta": "share", "tweedie": "rain", "multinomial": "kind", "gamma": "amount"},
}
TERMS = (
    *("x", "f * x", "(1|g)", "(x|g)", "(x||g)", "(1|g) + (1|h)", "(1|g/h)", "rw1(t)", "rw2(t)", "ar1(t)", "ar(t, p=2)"),
    *("seasonal(t, period=4)", "rw1(when)", "rw2(when)", "ar1(when)", "matern(when, nu=1.5)", "s(z)", "s(z, by=f)"),
    *("s(z, bs='cc')", "te(z, x)", "gp(z)", "gp(z, x)", "matern(lon, lat)", "vecchia(lon, lat)", "iid(h)"),
    *("icar(r)", "bym(r)", "bym2(r)", "leroux(r)", "icar(r, by=x)", "interact(icar(r), rw1(t))", "ar1(t, by=h)"),
)


def made(formula: str, family: str = "gaussian", **options):
    """The fitted model of a formula over the rows, a plain one unless the options ask for more."""
    options.setdefault("accuracy", "fast")
    y = FAMILIES[family]
    if y == "wins":
        options["trials"] = "n"
    if "(r" in formula:
        options["graphs"] = {"r": MAP}
    return fenchel.fit(f"{y} ~ {formula}", DATA, family, **options)


def dask(formula: str, family: str):
    pytest.importorskip("dask.dataframe")
    import dask.dataframe as dd

    return fenchel.fit(f"{FAMILIES[family]} ~ {formula}", dd.from_pandas(DATA, npartitions=3), family)


MODELS = {
    **{f"family {word}": lambda word=word: made("x + (1|g)", word) for word in FAMILIES},
    **{f"term {term}": lambda term=term: made(term, "gaussian") for term in TERMS},
    **{f"counts of {term}": lambda term=term: made(f"x + {term}", "poisson") for term in ("s(z)", "bym2(r)", "(x|g)")},
    "weights": lambda: made("x + (1|g)", "poisson", weights="w"),
    "exposure": lambda: made("x + (1|g)", "poisson", exposure="n"),
    "dispersion": lambda: made("x + (1|g)", "negative-binomial", dispersion="~ x"),
    "zero": lambda: made("x", "zero-inflated-poisson", zero="~ x"),
    "corrected": lambda: made("x + (1|g)", "bernoulli").corrected(),
    "corrected evidence": lambda: made("x + (1|g)", "bernoulli", evidence="corrected"),
    "integrated": lambda: made("x + (1|g)", "bernoulli", integrate="grid"),
    "integrated counts": lambda: made("x + s(z)", "poisson", integrate="auto"),
    "integrated ordinal": lambda: made("x + (1|g)", "ordinal", integrate="auto"),
    "integrated Cox": lambda: made("x", "cox", integrate="auto"),
    "iterative": lambda: made("x + (1|g) + (1|h)", "poisson", engine="iterative"),
    "partitions": lambda: dask("x + (1|g)", "poisson"),
}
SOME = ("family gaussian", "family poisson", "family bernoulli", "integrated", "partitions", "family multinomial")


def total(values) -> float:
    """One number that every entry goes into."""
    if isinstance(values, pd.DataFrame):
        values = values.select_dtypes("number").to_numpy()
    values = np.asarray(values, dtype=float).ravel()
    values = values[np.isfinite(values)]
    return float(np.abs(values) @ (1.0 + 0.1 * np.sin(np.arange(values.size)))) if values.size else 0.0


def furthest(fit) -> float:
    """How far the mean of 400 draws of eta is from its posterior mean, in standard errors, at the worst row."""
    draws, eta = np.asarray(fit.sample(NEW, 400, rng=0, kind="link")), fit.predict(NEW, "link", interval=0.9)
    error = draws.std(axis=0) / np.sqrt(len(draws))
    return float(np.abs((draws.mean(axis=0) - np.asarray(eta)[:, 0]) / error).max())


QUESTIONS = {
    "objective": lambda fit: fit.found.objective,
    "elbo": lambda fit: fit.elbo,
    "coefficients": lambda fit: total(fit.coefficients),
    "covariance": lambda fit: total(fit.covariance),
    "effects": lambda fit: sum(total(fit.effects[name]) for name in list(fit.effects)),
    "hyperparameters": lambda fit: total(fit.hyperparameters),
    "mean": lambda fit: total(fit.predict(NEW)),
    "interval": lambda fit: total(fit.predict(NEW, interval=0.9)),
    "link": lambda fit: total(fit.predict(NEW, "link", interval=0.9)),
    "outcome": lambda fit: total(fit.predict(NEW, "outcome", interval=0.9)),
    "probability": lambda fit: total(fit.predict(NEW, "probability")),
    "at the data": lambda fit: total(fit.predict(interval=0.5)),
    "without groups": lambda fit: total(fit.predict(NEW, without="groups", interval=0.9)),
    "exceedance": lambda fit: total(fit.exceedance(NEW, 0.5)),
    "sample": lambda fit: furthest(fit),
    "simulate": lambda fit: total(pd.factorize(np.ravel(fit.simulate(2, rng=0)), sort=True)[0]),
    "survival": lambda fit: total(fit.survival(NEW, [0.5, 1.0], interval=0.9, size=100)),
    "contrast": lambda fit: total(fit.contrast({"x": [1.0]}, {"x": [0.0]})),
    "slopes": lambda fit: total(fit.slopes("x", groups="own").drop(columns=["term", "contrast"])),
    "loo": lambda fit: fit.loo().elpd,
    "loo corrected": lambda fit: fit.loo(corrected=True).elpd,
    "waic": lambda fit: fit.waic().elpd,
    "groups left out": lambda fit: fit.leave_group_out("g").elpd,
    "folds": lambda fit: fit.k_fold(3, learn=False).elpd,
    "priors": lambda fit: len(fit.priors),
}
ONCE = ("loo corrected", "groups left out", "folds", "simulate", "slopes")  # slow: of some models alone


def answers(name: str, path: Path) -> dict[str, float | str]:
    """What the fit says to each question, before and after it was in a file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = MODELS[name]()
        out = {key: _asked(ask, fit) for key, ask in QUESTIONS.items() if key not in ONCE or name in SOME}
        fit.save(path)
        again = fenchel.load(path)
        out["from a file"] = _asked(QUESTIONS["survival" if "ox" in name else "mean"], again)
    return out


def _asked(ask, fit) -> float | str:
    try:
        return float(ask(fit))
    except (Refusal, KeyError, AttributeError):
        return "refused"


@pytest.mark.parametrize("name", MODELS)
def test_the_answers_are_those_of_the_tree_before(name: str, tmp_path: Path) -> None:
    before, now = json.loads(STORED.read_text())[name], answers(name, tmp_path / "fit.fenchel")
    assert now.keys() == before.keys()
    for key, value in before.items():
        if isinstance(value, str):
            assert now[key] == value, key
        else:
            if key == "sample":
                assert now[key] < FARTHEST
                continue
            close = CLOSE if key == "objective" else SEARCHED
            assert now[key] == pytest.approx(value, rel=close, abs=close), key


def store(names: list[str]) -> None:
    """Write the answers of the tree at hand: of every model, or of those whose name has one of the words."""
    import tempfile

    stored = json.loads(STORED.read_text()) if STORED.exists() and names else {}
    with tempfile.TemporaryDirectory() as folder:
        for name in MODELS:
            if not names or any(word in name for word in names):
                stored[name] = answers(name, Path(folder) / "fit.fenchel")
    STORED.write_text(json.dumps({name: stored[name] for name in MODELS if name in stored}, indent=1) + "\n")


if __name__ == "__main__" and "--store" in sys.argv:
    store(sys.argv[sys.argv.index("--store") + 1 :])

"""Tables whose columns have any likelihood: by its word, as an object, or one of the user's own from outside."""

import pickle
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from conftest import difference
from test_own_likelihood import Amount, Clumps

import fenchel
from fenchel.estimators import ProbabilisticPCA, select_components
from fenchel.factors.columns import read, words
from fenchel.factors.factor_model import FactorModel
from fenchel.factors.table_evidence import TableEvidence
from fenchel.hyperparameters.priors import Normal
from fenchel.likelihoods import BernoulliLogit, Gamma, Gaussian, MultinomialLogit, NegativeBinomial, Poisson

OWN = {"paid": Amount(2.0), "calls": Clumps(3.0)}
WORDS_FOR_TWO = ("bernoulli", "multinomial")
KNOWN = {"paid": Gamma(2.0), "calls": NegativeBinomial(3.0, bound="exact")}


def accounts(n=50, seed=0):
    """Amounts, counts, a yes or no and a real number of one factor, with holes."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=n)
    X = pd.DataFrame(
        {
            "paid": rng.gamma(2.0, np.exp(1 + 0.8 * z) / 2),
            "calls": rng.negative_binomial(3, 3 / (3 + np.exp(0.5 + 0.7 * z))),
            "late": (z + rng.logistic(size=n) > 0).astype(float),
            "size": 1.7 + 0.2 * z + 0.1 * rng.normal(size=n),
        }
    )
    return X.mask(rng.random(X.shape) < 0.1)


@pytest.fixture(scope="module")
def both():
    return [ProbabilisticPCA(1, likelihood=kinds, strength=1.0).fit(accounts()) for kinds in (OWN, KNOWN)]


def test_a_likelihood_of_ones_own_in_a_table(both):
    (mine, theirs), X = both, accounts()
    assert mine.converged_
    assert mine.elbo_ == pytest.approx(theirs.elbo_, abs=1e-5)
    np.testing.assert_allclose(mine.components_, theirs.components_, atol=1e-4)
    assert mine.likelihoods_["paid"].shape == pytest.approx(theirs.likelihoods_["paid"].shape, rel=1e-3)
    assert mine.columns_table()["kind"].tolist() == ["Amount", "Clumps", "bernoulli", "gaussian"]
    assert theirs.columns_table()["kind"].tolist() == ["gamma", "negative-binomial", "bernoulli", "gaussian"]
    np.testing.assert_allclose(mine.transform(X), theirs.transform(X), atol=1e-4)
    np.testing.assert_allclose(mine.score_samples(X), theirs.score_samples(X), atol=1e-5)
    assert mine.score_samples(X).sum() == pytest.approx(mine.elbo_, abs=1e-5)
    pd.testing.assert_frame_equal(mine.impute(X), theirs.impute(X), rtol=1e-3)
    said, known = (model.impute(X, return_distribution=True) for model in both)
    np.testing.assert_allclose(said[["mean", "sd"]], known[["mean", "sd"]], rtol=1e-3)
    np.testing.assert_allclose(mine.inverse_transform([[0.5]]), theirs.inverse_transform([[0.5]]), rtol=1e-4)
    draws = mine.sample(20, random_state=0)
    assert (draws["paid"] > 0).all()
    assert (draws["calls"] == np.floor(draws["calls"])).all()
    again = pickle.loads(pickle.dumps(mine))
    np.testing.assert_array_equal(again.transform(X), mine.transform(X))
    assert 0 <= mine.gap_ < 1e-5


def test_each_row_is_a_fit_of_its_own(both):
    (_, model), X = both, accounts()
    own, values = model._parameters.likelihoods, read(X, KNOWN).values
    score, mean = model.score_samples(X), model.transform(X)
    mixed = fenchel.likelihoods.Mixed(own, np.arange(4))
    for r in range(4):
        prior = fenchel.Features(model.components_.T, 1.0, offset=model.offset_)
        alone = fenchel.infer(mixed, prior, values[r], tol=1e-12)
        assert score[r] == pytest.approx(alone.elbo, abs=1e-7)
        np.testing.assert_allclose(mean[r], alone.posterior.latent_mean, atol=1e-4)


def test_slopes_of_a_table_against_differences():
    table = read(accounts(), OWN)
    evidence = TableEvidence(FactorModel(table.likelihoods, 2, "shared"), table.values, 1e-13)
    theta = evidence.write(evidence.starts.principal())
    slope = evidence(theta)[1]
    numeric = difference(lambda x: np.array([evidence(x)[0]]), theta, 1e-5)[0]
    np.testing.assert_allclose(slope, numeric, atol=2e-4, rtol=1e-4)
    assert len(evidence.names) == theta.size == len(evidence.bounds)
    assert evidence.names[-1] == "log noise variance of column 3"


COLUMNS = [word for word in words() if word != "multinomial"]


@pytest.mark.parametrize("word", COLUMNS)
def test_every_word_is_a_column(word):
    rng = np.random.default_rng(0)
    own, y = words()[word].example(rng, 40)
    if own.row_parameters:
        y = own.with_rows(**dict.fromkeys(own.row_parameters)).draw(0.3 * rng.normal(size=(40, 1)), rng)[:, 0]
    y[3] = np.nan
    X = np.column_stack([y, rng.normal(size=40) + np.nan_to_num(y), rng.normal(size=40)])
    model = ProbabilisticPCA(1, likelihood=[word, "gaussian", "gaussian"], strength=3.0).fit(X)
    assert np.isfinite(model.elbo_)
    assert model.columns_[0].kind == word
    assert np.isfinite(model.impute(X)).all()
    assert model.score_samples(X).sum() == pytest.approx(model.elbo_, abs=1e-4)


def test_numbers_of_factors_beside_a_likelihood_of_ones_own():
    options = {"strength": 1.0, "random_state": 0, "hidden": 0.05}
    found, known = (select_components(accounts(20), [1], likelihood=kinds, **options) for kinds in (OWN, KNOWN))
    np.testing.assert_allclose(found.evidence, known.evidence, atol=1e-3)
    np.testing.assert_allclose(found.bits, known.bits, atol=1e-3)
    np.testing.assert_allclose(found.baseline, known.baseline, atol=1e-6)


def test_two_categories_are_a_yes_or_no():
    X = (np.random.default_rng(0).random((40, 3)) < 0.4).astype(float)
    X[2, 0] = np.nan
    one, other = (ProbabilisticPCA(1, likelihood=kind, bound="log-sum", strength=1.0).fit(X) for kind in WORDS_FOR_TWO)
    assert one.elbo_ == pytest.approx(other.elbo_, abs=1e-5)
    np.testing.assert_allclose(one.inverse_transform([[0.0]])[0], other.inverse_transform([[0.0]])[0, 1::2], atol=1e-4)
    assert other.predictor_names_ == ["x0=0", "x1=0", "x2=0"]
    bits = [select_components(X, [1], likelihood=kind, bound="log-sum", random_state=0) for kind in WORDS_FOR_TWO]
    assert bits[0].baseline == pytest.approx(bits[1].baseline)
    assert set(np.unique(other.sample(9, random_state=0))) <= {0.0, 1.0}


def test_given_likelihoods_of_the_compiled_loop_stay_in_it():
    X = np.random.default_rng(0).poisson(2.0, (30, 3)).astype(float)
    words, objects = (ProbabilisticPCA(1, likelihood=x, strength=1.0).fit(X) for x in ("poisson", Poisson()))
    np.testing.assert_array_equal(words.components_, objects.components_)
    assert objects._model.has_dual
    general = ProbabilisticPCA(1, likelihood=Poisson(exposure=1.0), strength=1.0).fit(X)
    assert not general._model.has_dual
    assert general.elbo_ == pytest.approx(words.elbo_, abs=1e-5)
    labels = (X > 2).astype(int)
    loose, tight = (
        ProbabilisticPCA(1, likelihood=BernoulliLogit(bound), strength=0.1).fit(labels)
        for bound in ("jaakkola", "exact")
    )
    assert loose.elbo_ <= tight.elbo_ + 1e-6


@pytest.mark.parametrize(
    ("kinds", "sentence"),
    [
        (
            {"paid": Poisson(exposure=[1.0] * 50)},
            "likelihood of column 'paid' has one exposure for each row; expected one",
        ),
        (
            {"size": Gamma, "paid": "auto"},
            "likelihood of column 'size' = <class .* is not known.* Or give a Likelihood",
        ),
        (
            {"calls": MultinomialLogit(3, bound="log-sum")},
            r"column 'calls' has \d+ levels; expected 3 for \"multinomial\"",
        ),
        ({"late": Gamma(1.0)}, r"column 'late': Gamma: y\[.*\] = 0 is not"),
        (
            {"paid": Amount(2.0), "calls": "poisson", "late": "multinomial"},
            r"FactorModel: Amount\(.*\) cannot be used in a table with a column of categories",
        ),
        ({"calls": Gamma(2.0), "paid": "bernoulli"}, "column 'paid' has .* levels; expected two"),
    ],
)
def test_what_does_not_suit_a_column_is_refused(kinds, sentence):
    with pytest.raises(ValueError, match=sentence):
        ProbabilisticPCA(1, likelihood=kinds).fit(accounts())


def test_a_prior_of_a_columns_own_parameter_counts():
    class Believed(Gaussian):
        parameters = tuple(replace(p, prior=Normal(0.0, 1e-3)) for p in Gaussian.parameters)

    X = accounts()[["size", "paid"]]
    model = ProbabilisticPCA(1, likelihood={"size": Believed(0.5), "paid": "gaussian"}, strength=1.0).fit(X)
    assert model.converged_
    assert model.likelihoods_["size"].variance == pytest.approx(1.0, abs=0.01)
    assert np.isnan(model.noise_variance_[0])  # only of the library's own

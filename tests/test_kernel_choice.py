"""Kernels chosen by the evidence: what is tried, what it costs to be another than the first, and where none is chosen.

Witnesses: scikit-learn's own marginal likelihood at the theta of every trial, and data drawn from each kernel.
"""

import numpy as np
import pandas as pd
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor as Exact
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel

import fenchel
from fenchel.estimators import GaussianProcessClassifier, GaussianProcessPoissonRegressor, GaussianProcessRegressor
from fenchel.estimators.chosen_kernel import _Choice
from fenchel.estimators.lengths import few_rows
from fenchel.gmrf.spde import correlation
from fenchel.hyperparameters.kernel_choice import KernelShape, KernelTrials
from fenchel.kernels import contract, evaluate
from fenchel.scaled_kernels import ScaledMatern, ScaledRBF
from fenchel.terms import GaussianProcess
from fenchel.terms.smoothness import SmoothnessTrials

TRUE = {
    "rbf": RBF(0.3),
    "matern52": Matern(0.35, nu=2.5),
    "matern32": Matern(0.4, nu=1.5),
    "matern12": Matern(0.6, nu=0.5),
}


def drawn(kernel, n=150, d=2, noise=0.03, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.random((n, d))
    return X, np.linalg.cholesky(kernel(X) + 1e-9 * np.eye(n)) @ rng.normal(size=n) + noise * rng.normal(size=n)


def tried(trials, values):
    """The shapes that are tried where their evidence is known."""
    order = []
    while (shape := trials.next_one()) is not None:
        order.append(shape)
        trials = trials.and_also(shape, values[shape], np.zeros(1))
    return trials, order


# -- the rule --------------------------------------------------------------------------------------------
def test_kernels_are_tried_while_the_evidence_rises():
    values = dict.fromkeys(map(KernelShape, TRUE), 0.0) | {KernelShape("matern52"): -0.1}
    assert tried(KernelTrials(), values)[1] == [KernelShape("rbf"), KernelShape("matern52")]
    values |= {KernelShape("matern52"): 0.4}
    assert tried(KernelTrials(), values)[1] == [KernelShape("rbf"), KernelShape("matern52")]  # so flat none gains two
    values |= {KernelShape("matern52"): 1.0, KernelShape("matern32"): 3.0, KernelShape("matern12"): 2.0}
    trials, order = tried(KernelTrials(), values)
    assert [shape.word for shape in order] == ["rbf", "matern52", "matern32", "matern12"]
    assert trials.best() == KernelShape("matern32")
    assert trials.in_words(trials.best()) == "matern32, with 1.0 nats of evidence more than matern12"
    assert trials.frame()["chosen"].tolist() == [False, False, True, False]


def test_another_than_the_first_has_its_price():
    rbf, other, many = KernelShape("rbf"), KernelShape("matern52"), KernelShape("rbf", 5)
    trials = KernelTrials({rbf: 0.0, other: 1.9}, {}, lengths=5)
    assert trials.best() == rbf
    assert trials.and_also(other, 2.1, np.zeros(1)).best() == other
    assert trials.and_also(many, 5.9, np.zeros(1)).best() == rbf  # two nats, and one for each of four further lengths
    assert trials.and_also(many, 6.1, np.zeros(1)).best() == many
    scaled = rbf._replace(scaled=True)
    assert tried(KernelTrials(units=True), {rbf: 0.0, scaled: 5.0, scaled._replace(word="matern52"): 4.0})[1] == [
        rbf,
        scaled,
        scaled._replace(word="matern52"),  # in the better units
    ]


def test_each_starts_where_the_best_so_far_ended():
    trials = SmoothnessTrials({1.0: 0.0, 0.5: -9.0}, {1.0: np.zeros(2), 0.5: np.ones(2)})
    np.testing.assert_array_equal(trials.start(1.5), np.zeros(2))
    np.testing.assert_array_equal(trials.start(0.5), np.ones(2))


# -- kernels ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("nu", [0.5, 1.5, 2.5])
def test_scaled_matern_is_matern_of_scaled_columns(nu):
    rng = np.random.default_rng(0)
    X, Y, units = rng.normal(size=(6, 3)), rng.normal(size=(4, 3)), np.array([1e-3, 1.0, 50.0])
    kernel, plain = 2.0 * ScaledMatern(0.8, nu=nu, units=units), 2.0 * Matern(0.8, nu=nu)
    G = rng.normal(size=(6, 6))
    G = G + G.T
    np.testing.assert_allclose(evaluate(kernel, X), plain(X / units), rtol=1e-12)
    np.testing.assert_allclose(evaluate(kernel, X, Y), plain(X / units, Y / units), rtol=1e-12)
    np.testing.assert_allclose(
        contract(kernel, X, G), np.einsum("ij,ijp->p", G, plain(X / units, eval_gradient=True)[1]), rtol=1e-9
    )


# -- estimators ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("word", list(TRUE))
def test_the_kernel_of_the_data_is_chosen_or_hardly_better(word):
    X, y = drawn(TRUE[word], seed=3)
    found = GaussianProcessRegressor().fit(X, y).kernel_choice_
    chosen = found[found["chosen"]].iloc[0]
    true = found[(found["kernel"] == word) & (found["lengths"] == 1)]
    assert chosen["kernel"] == word or true["log evidence"].max() < chosen["log evidence"] + 2.0
    assert found["chosen"].sum() == 1
    assert word in ("rbf", "matern52") or chosen["kernel"] != "rbf"


def test_the_evidence_of_a_trial_is_scikit_learns(monkeypatch):
    import fenchel.estimators.chosen_kernel as module

    X, y = drawn(TRUE["matern32"], 80)
    seen = []
    honest = module._Choice._learned

    def noted(self, shape, trials):
        value, theta = honest(self, shape, trials)
        seen.append((self.kernel(shape).clone_with_theta(theta[:-1]), np.exp(theta[-1]), value))
        return value, theta

    monkeypatch.setattr(module._Choice, "_learned", noted)
    model = GaussianProcessRegressor().fit(X, y)
    assert len(seen) == len(model.kernel_choice_) > 2
    for kernel, noise, value in seen:
        own = kernel + ConstantKernel(10.0 * np.var(y)) + WhiteKernel(noise)
        witness = Exact(own, alpha=0.0, optimizer=None).fit(X, y - y.mean())
        assert value == pytest.approx(witness.log_marginal_likelihood_value_, abs=1e-2)
    assert model.elbo_ > model.kernel_choice_.query("chosen")["log evidence"].iloc[0] - 1e-3
    assert model.log_marginal_likelihood(model.kernel_.theta) == pytest.approx(model.elbo_, abs=1e-6)


def test_columns_that_say_nothing_have_long_lengths():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 4)) * [1.0, 100.0, 1.0, 1e-3]
    y = np.sin(3.0 * X[:, 0]) + 0.1 * rng.normal(size=120)
    model = GaussianProcessRegressor().fit(X, y)
    assert model.kernel_choice_.query("chosen")["lengths"].item() == 4
    lengths = model.kernel_.k2.length_scale / X.std(axis=0)
    assert lengths[1:].min() > 3.0 * lengths[0]
    assert model.converged_
    rough = GaussianProcessRegressor().fit(X[:, :1], y).kernel_choice_
    assert (rough["lengths"] == 1).all()


def test_units_are_chosen_by_what_is_learned():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(200, 3)) * [1.0, 30.0, 900.0]
    y = (X[:, 0] + X[:, 1] / 30.0 + X[:, 2] / 900.0 + 0.3 * rng.normal(size=200) > 0).astype(int)
    found = GaussianProcessClassifier().fit(X, y).kernel_choice_
    assert found["scaled"].nunique() == 2
    assert found.query("chosen")["scaled"].item()


def test_a_kernel_that_is_given_is_not_chosen():
    X, y = drawn(TRUE["matern12"], 80)
    given = GaussianProcessRegressor(1.0 * RBF(1.0)).fit(X, y)
    assert given.kernel_choice_ is None
    assert type(given.kernel_.k2) is RBF
    assert GaussianProcessClassifier(optimizer=None).fit(X, y > 0).kernel_choice_ is None
    assert GaussianProcessRegressor().fit(X[:49], y[:49]).kernel_choice_ is None
    again = GaussianProcessRegressor(warm_start=True).fit(X, y)
    assert again.kernel_choice_ is not None
    assert again.fit(X, y).kernel_choice_ is None


def test_neither_the_order_of_rows_nor_copies_of_them_matter():
    X, y = drawn(TRUE["matern32"], 90)
    rng = np.random.default_rng(0)
    counts = rng.poisson(np.exp(1.0 + y))
    one = GaussianProcessPoissonRegressor().fit(X, counts)
    order = rng.permutation(90)
    other = GaussianProcessPoissonRegressor().fit(X[order], counts[order])
    pd.testing.assert_frame_equal(one.kernel_choice_, other.kernel_choice_, rtol=1e-6)
    twice = GaussianProcessPoissonRegressor().fit(np.vstack([X, X]), np.tile(counts, 2))
    weighted = GaussianProcessPoissonRegressor().fit(X, counts, sample_weight=np.full(90, 2.0))
    pd.testing.assert_frame_equal(twice.kernel_choice_, weighted.kernel_choice_, rtol=1e-6)


def test_many_rows_choose_by_some_of_them():
    table = np.random.default_rng(0).random((700, 2))
    rows, weights = few_rows(table, None, 500, seed=0)
    assert rows.size == np.unique(rows).size == 500
    assert (weights == 1.0).all()
    order = np.random.default_rng(1).permutation(700)
    again = few_rows(table[order], None, 500, seed=0)[0]
    np.testing.assert_array_equal(table[rows], table[order][again])


def test_a_file_keeps_what_was_tried(tmp_path, monkeypatch):
    X, y = drawn(TRUE["matern12"], 80)
    model = GaussianProcessClassifier().fit(X, y > 0)
    model.save(tmp_path / "model.zip")
    monkeypatch.setattr("fenchel.estimators.chosen_kernel.Search", None)  # nothing is searched for again
    again = fenchel.load(tmp_path / "model.zip")
    pd.testing.assert_frame_equal(again.kernel_choice_, model.kernel_choice_)
    np.testing.assert_allclose(again.predict_proba(X), model.predict_proba(X))
    assert again.kernel_ == model.kernel_


# -- terms -----------------------------------------------------------------------------------------------
def frame(word, seed=0):
    X, y = drawn(TRUE[word], 120, seed=seed)
    return pd.DataFrame({"u": X[:, 0], "v": X[:, 1], "y": y})


@pytest.mark.parametrize("term", ["gp(u, v)", "vecchia(u, v)"])
@pytest.mark.parametrize("word", ["rbf", "matern12"])
def test_a_term_chooses_its_kernel(term, word):
    fit = fenchel.fit(f"y ~ {term}", frame(word), accuracy="fast")
    found = fit.model.sum.effects[0]
    assert found.kernel == word
    assert f"{word}, with" in fit.summary()
    given = fenchel.fit(f"y ~ {term[:-1]}, kernel='{word}', isotropic=True)", frame(word), accuracy="fast")
    assert given.solution.elbo == pytest.approx(fit.solution.elbo, abs=0.05)
    assert given.model.sum.effects[0].details() == ""
    new = pd.DataFrame({"u": [0.2, 0.9], "v": [0.4, 0.1]})
    both = (np.asarray(one.predict(new, kind="link", interval=0.9), dtype=float) for one in (fit, given))
    np.testing.assert_allclose(*both, atol=0.03)


def test_ranges_of_their_own_are_kept_where_they_gain():
    rng = np.random.default_rng(0)
    X = rng.random((150, 2))
    y = np.sin(9.0 * X[:, 0]) + 0.1 * rng.normal(size=150)
    data = pd.DataFrame({"u": X[:, 0], "v": X[:, 1], "y": y})
    found = fenchel.fit("y ~ gp(u, v)", data, accuracy="fast").model.sum.effects[0]
    assert [h.name for h in found.hyperparameters] == ["sd", "range u", "range v"]
    assert len({shape.lengths for shape in found.trials.evidence}) == 2
    few = fenchel.fit("y ~ gp(u, v)", data[:60], accuracy="fast").model.sum.effects[0]
    assert few.trials is None
    assert few.details() == "matern32"


def test_a_file_keeps_the_kernel_of_a_term(tmp_path):
    fit = fenchel.fit("y ~ gp(u)", frame("matern12"), accuracy="fast")
    fit.save(tmp_path / "fit.zip")
    again = fenchel.load(tmp_path / "fit.zip")
    ours, theirs = (one.model.sum.effects[0] for one in (fit, again))
    assert theirs.details() == ours.details()
    assert theirs.trials.evidence == pytest.approx(ours.trials.evidence)
    np.testing.assert_allclose(again.theta, fit.theta)


def test_options_and_priors_of_ranges_keep_them():
    data = frame("rbf")
    table = fenchel.Model("y ~ gp(u, v)", data).sum.effects[0]
    assert table.compares
    assert not table.stated_ranges
    for options in ({"isotropic": False}, {"isotropic": True}):
        assert fenchel.Model(f"y ~ gp(u, v, isotropic={options['isotropic']})", data).sum.effects[0].stated_ranges
    wide = fenchel.Model("y ~ gp(u, v)", data.assign(v=100.0 * data["v"])).sum.effects[0]
    assert wide.stated_ranges  # one range would have no unit
    prior = {"gp(u, v)": {"range u": fenchel.PC(range=0.5, alpha=0.1)}}
    for given, lengths in ((prior, 2), ({}, 1)):
        term = fenchel.Model("y ~ gp(u, v)", data, priors=given).sum.effects[0]
        assert term.settled(np.zeros(3), evidence=-50.0).trials.lengths == lengths
    assert GaussianProcess("u", kernel="rbf").kernel == "rbf"


# -- fields ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("nu", [0.1, 0.5, 1.0, 1.5, 2.0, 2.7, 3.0, "two ranges"])
def test_no_correlation_is_above_one(nu):
    distance = np.r_[0.0, 10.0 ** np.arange(-18.0, 1.0, 0.2)]
    found = correlation(distance, np.array([0.0, 0.0, 1.0]), nu)
    assert found.max() <= 1.0  # beyond it sqrt(1 - c^2) of a new point is not a number
    assert found[0] == pytest.approx(1.0, abs=1e-10)
    assert (np.diff(found) <= 1e-12).all() or nu == 0.1


def test_scaled_kernels_say_what_they_are():
    assert repr(ScaledRBF(2.0)) == "ScaledRBF(length_scale=2)"
    assert repr(ScaledMatern(2.0, nu=0.5)) == "ScaledMatern(length_scale=2, nu=0.5)"


def test_many_lengths_start_in_the_units_of_the_columns():
    """That of most evidence is in units of sds, and not worth its price: its length is one of sds all the same."""
    starts = [1.0 * RBF(2.0), 1.0 * ScaledRBF(1.0, units=np.array([1.0, 100.0]))]
    choice = _Choice(None, None, starts, None, None, False)
    trials = KernelTrials(lengths=2, units=True).and_also(KernelShape("rbf"), 0.0, np.log([1.0, 2.0]))
    trials = trials.and_also(KernelShape("rbf", scaled=True), 1.5, np.log([1.0, 0.5]))
    assert not trials.best().scaled
    carried = choice._carried(KernelShape("rbf", 2), trials)
    np.testing.assert_allclose(np.exp(carried), [1.0, 0.5, 50.0])

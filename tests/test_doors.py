"""What users bring to the doors and find there: where compiled code is kept, names, types, sentences."""

from __future__ import annotations

import contextlib
import datetime
import inspect
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.linalg
import scipy.sparse as sp
from sklearn.gaussian_process.kernels import RBF

import fenchel
from fenchel import estimators, gmrf, likelihoods
from fenchel.checks import Refusal
from fenchel.hyperparameters import KernelCovariance, PCDeviation, ScaledCovariance, WeightVariances, grid, learn

SOURCE = Path(fenchel.__file__).parent


def _run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {key: value for key, value in os.environ.items() if not key.startswith("NUMBA")}
    env |= {"OPENBLAS_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", **environment}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=300)


# -- compiled code ---------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def sealed(tmp_path_factory):
    """The package where numba can write nowhere: a file stands where __pycache__ would, HOME is no folder."""
    top = tmp_path_factory.mktemp("sealed")
    shutil.copytree(SOURCE, top / "fenchel", ignore=shutil.ignore_patterns("__pycache__"))
    (top / "fenchel" / "linalg" / "__pycache__").write_text("")
    (top / "tmp").mkdir()
    return {
        "PYTHONPATH": str(top),
        "HOME": "/dev/null",
        "XDG_CACHE_HOME": "/dev/null/cache",
        "TMPDIR": str(top / "tmp"),
    }


FACTOR = """
import numpy as np, scipy.sparse as sp
from numba.core import event
seen = set()
class Listener(event.Listener):
    def on_start(self, event):
        seen.add(event.data["dispatcher"].py_func.__module__)
    def on_end(self, event):
        pass
event.register("numba:compile", Listener())
from fenchel.linalg import SparseCholesky, _multifrontal
A = sp.csc_array(np.diag(np.full(4, 2.5)) - np.diag(np.ones(3), 1) - np.diag(np.ones(3), -1))
inverse = np.linalg.inv(A.toarray())
assert np.allclose(SparseCholesky(A).solve(np.eye(4)), inverse)
assert np.allclose(SparseCholesky(A).inverse_diagonal(), np.diag(inverse))
print(sum(_multifrontal.factorise.stats.cache_hits.values()), _multifrontal.factorise.stats.cache_path, *seen)
"""


@pytest.mark.skipif(os.name == "nt", reason="HOME=/dev/null")
def test_without_a_folder_to_cache_in_the_temporary_one_is_taken(sealed):
    first = _run(FACTOR, **sealed)
    assert first.returncode == 0, first.stderr
    assert first.stdout.split()[0] == "0"
    assert first.stdout.split()[1].startswith(sealed["TMPDIR"])
    assert first.stderr.count("compiling for this computer") == 1  # said once, not once a function
    seen = set(first.stdout.split()[2:])
    assert "fenchel.linalg._multifrontal" in seen
    # slices assigned to slices bring numba's text formatting along, sort() a sort: half of the time it compiled
    assert not {"numba.cpython.unicode", "numba.misc.quicksort"} & seen
    again = _run(FACTOR, **sealed)
    assert again.stdout.split()[0] == "1"
    assert again.stderr == ""
    folder = next(Path(sealed["TMPDIR"]).glob("fenchel-compiled-*"))
    assert folder.stat().st_mode & 0o077 == 0  # what lies there is run as code
    for data in folder.rglob("*.nb?"):
        data.write_bytes(b"")  # a full disk, a crash
    assert _run(TREE, **sealed).returncode == 0


TREE = """
import numpy as np
import pandas as pd
from fenchel.linalg import _symbolic
print(_symbolic.postorder(np.array([1, 2, -1])).tolist(), _symbolic.postorder.stats.cache_path)
"""


@pytest.mark.skipif(os.name == "nt", reason="HOME=/dev/null")
@pytest.mark.parametrize("trouble", ["no folder", "another's folder", "a link"])
def test_without_any_folder_nothing_is_kept(sealed, tmp_path, trouble):
    folder = tmp_path / f"fenchel-compiled-{os.getuid()}"
    if trouble == "another's folder":
        folder.mkdir()
        folder.chmod(0o777)  # anybody could leave code there
    if trouble == "a link":
        (tmp_path / "elsewhere").mkdir()
        folder.symlink_to(tmp_path / "elsewhere")
    where = "/dev/null/x" if trouble == "no folder" else str(tmp_path)
    out = _run(f"import tempfile; tempfile.tempdir = {where!r}\n" + TREE, **sealed)
    assert out.returncode == 0, out.stderr
    assert out.stdout.strip() == "[0, 1, 2] None"


# -- the front door --------------------------------------------------------------------------------------
def test_every_estimator_stands_at_the_front_door():
    from sklearn.base import BaseEstimator

    names = [
        name
        for name in estimators.__all__
        if isinstance(getattr(estimators, name), type) and issubclass(getattr(estimators, name), BaseEstimator)
    ]
    assert len(names) >= 7
    for name in names:
        assert getattr(fenchel, name) is getattr(estimators, name)
        assert name in dir(fenchel)
        assert name in fenchel.__all__
    assert set(fenchel.__all__) == {*fenchel._HOME, *fenchel._ROOMS, "__version__"}


def test_a_look_at_the_names_loads_nothing():
    out = _run("import sys, fenchel; dir(fenchel); print('sklearn' in sys.modules)", PYTHONPATH=str(SOURCE.parent))
    assert out.stdout.strip() == "False"


# -- what is printed, and where ----------------------------------------------------------------------------
def _counts(n=12):
    x = np.linspace(0, 3, n)
    return np.exp(-0.5 * (x[:, None] - x) ** 2), np.round(3 + 2 * np.sin(3 * x))


def test_leave_one_out_prints_a_line():
    K, y = _counts()
    y[3] = np.nan
    loo = fenchel.infer(fenchel.Poisson(), fenchel.DenseCovariance(K), y).loo()
    seen = loo.log_density[~np.isnan(loo.log_density)]
    line = repr(loo)
    assert "array" not in line
    assert "\n" not in line
    assert f"elpd={seen.sum():.4f}" in line
    assert "11 of 12 rows observed" in line
    assert f"(row {int(np.nanargmin(loo.log_density))})" in line
    assert loo.elpd_se == pytest.approx(np.sqrt(11 * seen.var(ddof=1)))
    nothing = fenchel.infer(fenchel.Poisson(), fenchel.DenseCovariance(K), np.full(12, np.nan)).loo()
    assert repr(nothing) == "LeaveOneOut(none of 12 rows observed)"


def test_summary_of_a_learned_fit_shows_the_tolerance_asked_for():
    x = np.linspace(0, 6, 30)[:, None]
    y = np.random.default_rng(0).poisson(np.exp(1 + np.sin(2 * x[:, 0])))
    for tol in (1e-6, 1e-8, 1e-10):
        found = learn(fenchel.Poisson(), KernelCovariance(1.0 * RBF(1.0), x, mean=1.0), y, tol=tol)
        assert found.converged
        assert found.solution.tol == tol
        assert f"asked {tol:.1e}" in found.solution.summary()
        assert f"<= {tol:.1e}" in found.solution.status
        assert found.solution.gap <= tol * max(1.0, abs(found.solution.elbo))


def test_demo_says_at_once_that_a_folder_cannot_be_written():
    from click.testing import CliRunner

    from fenchel.cli import main

    for command in ("demo", "reproduce"):
        out = CliRunner().invoke(main, [command, "--out", "/proc/x"])
        assert out.exit_code == 1
        assert out.output.startswith("Error: /proc/x: cannot be written to (")
        assert "--out" in out.output


@pytest.mark.parametrize(
    ("missing", "code"),
    [
        ("pandas", "fenchel.infer(fenchel.Poisson(), fenchel.DenseCovariance(np.eye(2)), [1, 2]).trace.to_frame()"),
        ("matplotlib", "import fenchel.plots; fenchel.plots.plot_map([[np.eye(3)[:, :2]]], [1.0])"),
        ("matplotlib", "import fenchel.plots; fenchel.plots.plot_path(np.arange(2), [0, 1], [0, 1], [0, 1])"),
    ],
)
def test_without_an_optional_library_a_sentence(missing, code):
    extra = {"matplotlib": "plots"}.get(missing, missing)
    hide = f"import sys, warnings; sys.modules[{missing!r}] = None; warnings.simplefilter('ignore')\n"
    out = _run(hide + "import numpy as np, fenchel\n" + code, PYTHONPATH=str(SOURCE.parent))
    last = out.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: "), out.stderr
    assert last.endswith(f'{missing} is not installed. Try: pip install "fenchel[{extra}]"')


# -- types that would silently become something else -------------------------------------------------------
N = 12
ROWS = np.random.default_rng(0)
PLAIN = pd.DataFrame({"a": ROWS.normal(size=N), "b": ROWS.normal(size=N)})
COUNTS = ROWS.poisson(3.0, N)
LABELS = np.arange(N) % 2
TABULAR = [
    (estimators.GaussianProcessClassifier, LABELS),
    (estimators.GaussianProcessPoissonRegressor, COUNTS),
    (estimators.GaussianProcessRegressor, COUNTS),
    (estimators.BayesianLinearRegression, COUNTS),
    (estimators.BayesianLogisticRegression, LABELS),
    (estimators.BayesianPoissonRegression, COUNTS),
]
UNSUITED = {
    "categories": [pd.Categorical(["1", "2", "10"] * 4), pd.Categorical([1, 2, 3] * 4)],
    "text": [np.array(["1", "2", "3"] * 4), np.array([1, "2", 3.0] * 4, dtype=object), pd.array(["1"] * N, "string")],
    "dates": [
        pd.date_range("2020", periods=N),
        pd.date_range("2020", periods=N, tz="UTC"),
        pd.period_range("2020", periods=N, freq="M"),
        np.array([datetime.date(2020, 1, 1)] * N, dtype=object),
    ],
    "time spans": [pd.to_timedelta(np.arange(N), unit="D")],
}


@pytest.mark.parametrize("word", UNSUITED)
@pytest.mark.parametrize(("estimator", "y"), TABULAR, ids=lambda value: getattr(value, "__name__", ""))
def test_what_is_not_numbers_is_refused_by_column(estimator, y, word):
    cure = {"dates": "days since the first", "time spans": "np.timedelta64"}.get(word, "OneHotEncoder")
    levels = word in ("categories", "text") and estimator.__name__.startswith("Gaussian")  # tests/test_categories.py
    for column in UNSUITED[word] if not levels else UNSUITED[word][1:2] if word == "text" else []:  # of several kinds
        with pytest.raises(
            Refusal, match=rf"^{estimator.__name__}: X\['bad'\] holds {word}; expected numbers\. .*{cure}"
        ):
            estimator().fit(PLAIN.assign(bad=column), y)
    values = np.array([["1", "2"]] * N)
    for X in (values, values.tolist()):
        with pytest.raises(Refusal, match="X holds text"):
            estimator().fit(X, y)
    with pytest.raises(Refusal, match=r"X\[:, 1\] holds text"):
        estimator().fit(np.array([[0.5, "2"]] * N, dtype=object), y)


def test_prediction_refuses_the_same():
    model = estimators.BayesianPoissonRegression().fit(PLAIN, COUNTS)
    with pytest.raises(Refusal, match=r"X\['a'\] holds text"):
        model.predict(PLAIN.astype(str))


def test_numbers_in_any_clothes_stay_numbers():
    """Booleans are 0 and 1; objects, nullable and unmasked columns of numbers are the numbers."""
    wanted = estimators.BayesianLinearRegression().fit(PLAIN.assign(c=np.arange(N) % 2.0), COUNTS).coef_
    flags = np.arange(N) % 2
    for column in (flags == 1, pd.array(flags == 1, "boolean"), pd.array(flags, "Int64"), flags.astype(object)):
        X = PLAIN.assign(c=column)
        np.testing.assert_allclose(estimators.BayesianLinearRegression().fit(X, COUNTS).coef_, wanted, rtol=1e-12)
    X = np.ma.array(PLAIN.assign(c=flags).to_numpy())
    np.testing.assert_allclose(estimators.BayesianLinearRegression().fit(X, COUNTS).coef_, wanted, rtol=1e-12)


MASK = np.arange(N) % 4 == 1


@pytest.mark.parametrize(("estimator", "y"), TABULAR, ids=lambda value: getattr(value, "__name__", ""))
def test_masked_cells_are_refused_by_estimators_that_need_every_row(estimator, y):
    name = estimator.__name__
    with pytest.raises(Refusal, match=rf"^{name}: y\[1\] is masked; expected a value in every entry"):
        estimator().fit(PLAIN, np.ma.array(y, mask=MASK))
    X = np.ma.array(PLAIN.to_numpy())
    X[2, 1] = np.ma.masked
    with pytest.raises(Refusal, match=rf"^{name}: X\[2, 1\] is masked"):
        estimator().fit(X, y)
    with pytest.raises(Refusal, match=r"^fit: sample_weight\[1\] is masked"):
        estimator().fit(PLAIN, y, sample_weight=np.ma.array(np.ones(N), mask=MASK))


def test_masked_is_unobserved_in_y():
    """As if the rows were not there: a marginal of a Gaussian prior is the prior of the rest."""
    y = np.ma.array(np.where(MASK, 99999, COUNTS), mask=MASK)
    K = np.exp(-0.5 * (np.arange(N)[:, None] - np.arange(N)) ** 2)
    fit = fenchel.infer(fenchel.Poisson(), fenchel.DenseCovariance(K), y)
    rest = fenchel.infer(fenchel.Poisson(), fenchel.DenseCovariance(K[~MASK][:, ~MASK]), COUNTS[~MASK])
    assert fit.elbo == pytest.approx(rest.elbo, rel=1e-9)
    assert fit.n_observed == N - MASK.sum()
    again = fenchel.infer(fenchel.Poisson(), fenchel.DenseCovariance(K), np.ma.array(COUNTS))
    assert again.n_observed == N
    assert y[1] is np.ma.masked  # the user's array is as it was
    walk = fenchel.FormulaRegressor("y ~ rw1(t)", "poisson").fit(pd.DataFrame({"t": np.arange(N)}), y)
    assert walk.fit_.solution.n_observed == N - MASK.sum()


def test_missing_of_pandas_is_unobserved_in_y():
    counts = pd.Series(pd.array([1, None, 2, 3] * 3, "Int64"))
    assert fenchel.infer(fenchel.Poisson(), fenchel.DenseCovariance(np.eye(N)), counts).n_observed == 9


@pytest.mark.parametrize(
    "use",
    [
        lambda ones: fenchel.DenseCovariance(np.ma.array(np.eye(N), mask=np.diag(ones.mask))),
        lambda ones: fenchel.DenseCovariance(np.eye(N), mean=ones),
        lambda ones: fenchel.Features(ones[:, None]),
        lambda ones: fenchel.Features(np.eye(N), variance=ones),
        lambda ones: fenchel.infer(fenchel.Poisson(ones), fenchel.DenseCovariance(np.eye(N)), COUNTS),
        lambda ones: fenchel.infer(
            fenchel.Binomial(9 * ones, bound="log-sum"), fenchel.DenseCovariance(np.eye(N)), COUNTS
        ),
        lambda ones: fenchel.infer(fenchel.Gaussian(ones), fenchel.DenseCovariance(np.eye(N)), COUNTS),
        lambda ones: fenchel.infer(fenchel.Poisson(), fenchel.DenseCovariance(np.eye(N)), COUNTS, weights=ones),
        lambda ones: fenchel.Ordinal(np.ma.cumsum(ones), bound="log-sum"),
        lambda ones: estimators.BayesianPoissonRegression().fit(PLAIN, COUNTS, exposure=ones),
        lambda ones: fenchel.fit("y ~ (1|a)", PLAIN.assign(y=COUNTS), "poisson", exposure=ones),
    ],
)
def test_masked_is_refused_where_every_number_counts(use):
    mask = MASK.copy()
    mask[1], mask[2] = False, True
    with pytest.raises(Refusal, match="is masked; expected a value in every entry"):
        use(np.ma.array(np.ones(N), mask=mask))


@pytest.mark.parametrize(
    ("y", "sentence"),
    [
        (pd.date_range("2020", periods=N), "but holds dates; .* days since"),
        (np.arange(N).astype("m8[D]"), "but holds time spans; "),
        (np.array(["1", "2"] * 6, dtype=object), "is not an array of real numbers; "),
        (np.array(["1", "2"] * 6), "is not an array of real numbers; "),
        (pd.Series(pd.Categorical(["1", "2"] * 6)), "is not an array of real numbers; "),
        (np.arange(N) * 1j, "is not an array of real numbers; |Complex data not supported"),
    ],
)
def test_targets_that_are_not_numbers_are_refused(y, sentence):
    with pytest.raises(Refusal, match="Poisson: y .*" + sentence.partition("|")[0]):
        fenchel.infer(fenchel.Poisson(), fenchel.DenseCovariance(np.eye(N)), y)
    for estimator, numbers in TABULAR:
        if numbers is COUNTS:
            with pytest.raises(ValueError, match=sentence):
                estimator().fit(PLAIN, y)


# -- draws of the latents ----------------------------------------------------------------------------------
def _exact(prior_precision, W, lam, C=None):
    """Cov[z] by matrices written out; given C z = 0 where there are constraints."""
    P = prior_precision + W.T @ np.diag(lam) @ W
    if C is None:
        return np.linalg.inv(P)
    basis = scipy.linalg.null_space(C)
    return basis @ np.linalg.inv(basis.T @ P @ basis) @ basis.T


def _latent_cases():
    rng = np.random.default_rng(3)
    n, L = 9, 5
    W, wide = rng.normal(size=(n, L)), rng.normal(size=(n, 14))
    D = np.diff(np.eye(L), axis=0)
    A = rng.normal(size=(n, n))
    Q = D.T @ D + 0.3 * np.eye(L)
    y = rng.poisson(2.0, n).astype(float)
    y[4] = np.nan
    return y, {
        "dense": (fenchel.DenseCovariance(A @ A.T + np.eye(n)), np.linalg.inv(A @ A.T + np.eye(n)), np.eye(n), None),
        "designed": (fenchel.DenseCovariance(np.linalg.inv(Q), design=W), Q, W, None),
        "features": (fenchel.Features(W, variance=2.0), np.eye(L) / 2, W, None),
        "wide": (fenchel.Features(wide, variance=0.5), 2 * np.eye(14), wide, None),
        "sparse": (fenchel.SparsePrecision(sp.csc_array(Q), design=sp.csr_array(W)), Q, W, None),
        "constrained": (
            fenchel.SparsePrecision(sp.csc_array(D.T @ D), design=sp.csr_array(W), constraints="sum-to-zero"),
            D.T @ D,
            W,
            np.ones((1, L)),
        ),
    }


@pytest.mark.parametrize("case", ["dense", "designed", "features", "wide", "sparse", "constrained"])
def test_draws_of_the_latents_have_the_posterior_s_moments(case):
    y, cases = _latent_cases()
    prior, Q, W, C = cases[case]
    sol = fenchel.infer(fenchel.Poisson(), prior, y)
    V = _exact(Q, W, np.ravel(sol.lam), C)
    draws = sol.posterior.sample_latents(40_000, 0)
    assert draws.shape == (40_000, Q.shape[0])
    scale = np.sqrt(np.outer(np.diag(V), np.diag(V)))
    assert (np.abs(np.cov(draws.T) - V) / scale).max() < 0.03  # six standard errors
    np.testing.assert_allclose(draws.mean(axis=0), sol.posterior.latent_mean, atol=6 * np.sqrt(V.max() / 40_000))
    if C is not None:
        np.testing.assert_allclose(draws @ C.T, 0.0, atol=1e-9)
    np.testing.assert_array_equal(draws[:5], sol.posterior.sample_latents(40_000, np.random.default_rng(0))[:5])
    assert sol.posterior.sample_latents(0).shape == (0, Q.shape[0])


def test_draws_of_the_latents_class_by_class():
    y = np.arange(9) % 3
    K = np.exp(-0.5 * (np.arange(9.0)[:, None] - np.arange(9.0)) ** 2)
    sol = fenchel.infer(fenchel.MultinomialLogit(3, bound="log-sum"), fenchel.DenseCovariance(K), y)
    draws = sol.posterior.sample_latents(20_000, 1)
    assert draws.shape == (20_000, 9, 2)  # the last class is the baseline
    for c in range(2):
        V = _exact(np.linalg.inv(K), np.eye(9), sol.lam[:, c])
        assert np.abs(np.cov(draws[:, :, c].T) - V).max() < 0.05 * np.diag(V).max()


def test_draws_of_the_latents_of_a_rival():
    from fenchel.paper.rivals import laplace

    y, cases = _latent_cases()
    prior, Q, W, _ = cases["designed"]
    sol = laplace(fenchel.Poisson(), prior, y)
    curvature = np.where(np.isnan(y), 0.0, np.exp(W @ sol.posterior.latent_mean))  # of Poisson's, at the mode
    V = _exact(Q, W, curvature)
    draws = sol.posterior.sample_latents(40_000, 0)
    assert (np.abs(np.cov(draws.T) - V) / np.sqrt(np.outer(np.diag(V), np.diag(V)))).max() < 0.03


@pytest.mark.parametrize("size", [-1, 1.5, "2", None, np.nan, True])
def test_the_hint_of_sparse_latents_is_followed_through(size):
    y, cases = _latent_cases()
    posterior = fenchel.infer(fenchel.Poisson(), cases["constrained"][0], y).posterior
    with pytest.raises(Refusal, match=r"posterior\.sample_latents for joint draws"):
        posterior.latent_covariance()
    for draw in (posterior.sample, posterior.sample_latents):
        with pytest.raises(Refusal, match="an integer >= 0"):
            draw(size)


# -- every wrong call gets a sentence ----------------------------------------------------------------------
KERNEL = np.exp(-0.5 * (np.arange(N)[:, None] - np.arange(N)) ** 2) + 0.1 * np.eye(N)
PRIOR = fenchel.DenseCovariance(KERNEL)
RBF_FAMILY = KernelCovariance(1.0 * RBF(1.0), np.arange(N)[:, None])
SINGULAR = sp.csc_array(np.diff(np.eye(N), axis=0).T @ np.diff(np.eye(N), axis=0))


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: fenchel.LaplaceNoise(1e200),
            r"LaplaceNoise: scale = 1e\+200 cannot be squared in doubles",
        ),
        (lambda: fenchel.Gamma(1e200), r"Gamma: shape = 1e\+200 cannot be squared"),
        (lambda: fenchel.StudentT(df=1e-140), r"StudentT: df = 1e-140; expected 0\.001 or more"),
        (lambda: fenchel.Gaussian(10**400), "Gaussian: variance is not an array of real numbers"),
        (
            lambda: fenchel.MultinomialLogit(None, bound="log-sum"),
            r"MultinomialLogit: n_classes = None; expected an integer >= 2",
        ),
        (lambda: fenchel.MultinomialLogit(np.inf, bound="log-sum"), r"n_classes = inf; expected an integer >= 2"),
        (
            lambda: fenchel.MultinomialLogit(3, n_draws="many", bound="log-sum"),
            r"n_draws = 'many'; expected an integer >= 1",
        ),
        (lambda: fenchel.BernoulliLogit(bound=np.ones((3, 2))), "bound = .* is not known; expected"),
        (lambda: fenchel.BernoulliLogit(bound=sp.eye_array(3)), "bound = .* is not known; expected"),
        (lambda: fenchel.Features(None), "Features: design is None; expected features X"),
        (lambda: fenchel.Features(np.eye(2), [[1], [1, 2]]), "Features: variance is not an array of real numbers"),
        (lambda: fenchel.infer(fenchel.Poisson(), PRIOR, COUNTS, method=KERNEL), "method = a ndarray is not known"),
        (lambda: fenchel.infer(fenchel.Poisson(), PRIOR, COUNTS, tol=10**400), "infer: tol = "),
        (lambda: fenchel.infer(fenchel.Poisson(), PRIOR, COUNTS, callback=3), "callback is a int; expected a function"),
        (lambda: fenchel.infer(fenchel.Poisson(), PRIOR, [10**400] * N), "Poisson: y is not an array of real numbers"),
        (
            lambda: fenchel.infer(fenchel.Poisson(), PRIOR, COUNTS).posterior.predict(cross=sp.eye_array(N)),
            "cross is a scipy sparse matrix; expected a dense array",
        ),
        (lambda: learn("poisson", RBF_FAMILY, COUNTS), r"learn: likelihood is a str; expected a Likelihood such as"),
        (lambda: learn(fenchel.Poisson, RBF_FAMILY, COUNTS), r"learn: likelihood is the class Poisson"),
        (lambda: learn(fenchel.Poisson(), RBF(1.0), COUNTS), "learn: family is a RBF; expected a Family such as"),
        (lambda: learn(fenchel.Poisson(), RBF_FAMILY, COUNTS, theta="start"), "learn: theta is not an array"),
        (lambda: learn(fenchel.Poisson(), RBF_FAMILY, COUNTS, n_restarts=1.5), "n_restarts = 1.5; expected an integer"),
        (lambda: learn(fenchel.Poisson(), RBF_FAMILY, COUNTS, max_iter=None), "max_iter = None; expected an integer"),
        (
            lambda: learn(fenchel.Poisson(), RBF_FAMILY, COUNTS, gtol=[]),
            r"gtol has shape \(0,\); expected",
        ),
        (lambda: learn(fenchel.Poisson(), RBF_FAMILY, COUNTS, callback=1), "callback is a int"),
        (
            lambda: grid(fenchel.Poisson(), PRIOR, COUNTS, [[0.0]]),
            "grid: family is a DenseCovariance",
        ),
        (lambda: grid(fenchel.Poisson(), RBF_FAMILY, COUNTS, 3), "grid: axes is a int; expected a list of vectors"),
        (lambda: KernelCovariance("rbf", np.ones((3, 1))), "KernelCovariance: kernel is a str; expected a kernel"),
        (lambda: ScaledCovariance(KERNEL, variance=-1.0), "variance = -1.0; expected a finite number above 0"),
        (lambda: ScaledCovariance(KERNEL, bounds=(2.0, 1.0)), r"bounds = \[2\.0, 1\.0\]; expected two finite numbers"),
        (lambda: WeightVariances(None), "Features: design is None"),
        (lambda: WeightVariances(np.eye(2), groups="a"), "WeightVariances: groups is not an array"),
        (lambda: PCDeviation(u="1"), "PCDeviation: u is not an array of real numbers"),
        (lambda: gmrf.rw1(1e200), r"rw1: n = 1e\+200; expected an integer >= 2"),
        (lambda: gmrf.rw1("12"), r"rw1: n = '12'; expected an integer >= 2"),
        (lambda: gmrf.rw1(12, precision=-1.0), "gmrf: precision = -1.0; expected a finite number above 0"),
        (lambda: gmrf.lattice(4), r"lattice: shape = 4; expected \(rows, columns\)"),
        (lambda: gmrf.matern((4, 4), range="far"), "matern: range is not an array of real numbers"),
        (lambda: gmrf.leroux(np.ones((3, 3)) - np.eye(3), rho=None), "leroux: rho = nan|leroux: rho is not"),
        (lambda: gmrf.generic("R"), "generic: structure is not an array of real numbers"),
        (lambda: gmrf.stack(gmrf.iid(3)), "stack: effects is not a list of pairs"),
        (lambda: gmrf.stack([("iid", [0, 1])]), "stack: effects is not a list of pairs"),
        (
            lambda: estimators.GaussianProcessClassifier(tol=None).fit(PLAIN, LABELS),
            "GaussianProcessClassifier: tol (is not an array|= nan)",
        ),
        (
            lambda: estimators.GaussianProcessClassifier(n_restarts_optimizer="two").fit(PLAIN, LABELS),
            "n_restarts_optimizer = 'two'; expected an integer >= 0",
        ),
        (
            lambda: estimators.GaussianProcessClassifier(optimizer=None).fit(PLAIN, LABELS).score(PLAIN, None),
            r"GaussianProcessClassifier: y has shape \(\); expected \(12,\): one label for each row",
        ),
        (
            lambda: estimators.BayesianPoissonRegression().fit([[10**400]] * N, COUNTS),
            "BayesianPoissonRegression: X holds a number that overflows double precision",
        ),
        (
            lambda: learn(fenchel.Poisson(), KernelCovariance(RBF(1.0), PLAIN, mean=1e200), COUNTS),
            "learn: the evidence or its gradient is not finite at the start|infer: ",
        ),
        (
            lambda: fenchel.infer(fenchel.OrdinalProbit([0, 1]), fenchel.DenseCovariance(KERNEL, mean=1e100), [1] * N),
            "^infer: ",
        ),
    ],
)
def test_a_wrong_call_gets_a_sentence(call, sentence):
    with pytest.raises(Refusal, match=sentence):
        call()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # overflow is said by numpy, and by the status
@pytest.mark.parametrize("name", likelihoods.__all__)
def test_scales_at_the_ends_of_doubles(name):
    """A fit, or a sentence: no error of Python's or of numpy's own."""
    made = getattr(likelihoods, name)
    if not (isinstance(made, type) and issubclass(made, likelihoods.Likelihood)) or inspect.isabstract(made):
        pytest.skip("not a likelihood to make")
    likelihood, y = made.example(np.random.default_rng(0), N)
    for scale in (1e-320, 1e-200, 1e100, 1e200, 1e300):
        for make in (
            lambda s: fenchel.DenseCovariance(s * KERNEL),
            lambda s: fenchel.DenseCovariance(KERNEL, mean=s),
            lambda s: fenchel.Features(s * KERNEL[:, :2]),
            lambda s: fenchel.SparsePrecision(s * (SINGULAR + sp.eye_array(N))),
        ):
            with contextlib.suppress(Refusal):
                sol = fenchel.infer(likelihood, make(scale), y, max_iter=20)
                sol.summary()
                repr(sol.loo(0))


def test_the_length_of_a_constraint_means_nothing():
    y = np.array(COUNTS, dtype=float)
    fits = [
        fenchel.infer(fenchel.Poisson(), fenchel.SparsePrecision(SINGULAR, constraints=scale * np.ones((1, N))), y)
        for scale in (1.0, 1e200, 1e-200)
    ]
    for fit in fits[1:]:
        assert fit.elbo == pytest.approx(fits[0].elbo, rel=1e-12)

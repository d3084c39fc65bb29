"""Gaussian process estimators with the interface of scikit-learn."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.utils.validation import check_is_fitted

from ..category_kernels import LevelKernels, is_of_columns
from ..checks import choice, problem
from ..gmrf.kernel_neighbours import N_NEIGHBORS
from ..hyperparameters import Learned
from ..inputs.observations import Target
from ..kernels import at_theta, is_compound, kernels_of, names_of
from ..linalg.arrays import to_numpy
from ..linalg.devices import device_of, find_device, says_when_full
from .base import LatentGaussianEstimator, validate_data
from .categories import read_categories
from .chosen_kernel import ChosenKernel, chosen_kernel, own_kernel, visible_start, warn_repeated, warn_unrelated
from .classification import Classification
from .counts import Counts
from .kernel_latent import KernelLatent
from .lengths import announce, kernel_starts
from .mean_functions import is_centred, mean_word, read_mean, trend_moments
from .outputs import OutputUnits, in_units

_DEVICE_ADVICE = (
    'Use approximation="inducing", fewer points (n_inducing=) or fewer rows; or device=None, in the memory of the host.'
)


@dataclass(eq=False, repr=False)
class GaussianProcessEstimator(LatentGaussianEstimator):
    """Base class of the Gaussian process estimators: their parameters, and the fit of a target."""

    kernel: Any = None
    _: KW_ONLY
    optimizer: Any = "fmin_l_bfgs_b"
    n_restarts_optimizer: int = 0
    fit_intercept: bool = True
    intercept_variance: float = 10.0
    slope_variance: float = 10.0
    warm_start: bool = False
    copy_X_train: bool = True
    tol: float = 1e-10
    random_state: Any = None
    progress: bool = False
    integrate: Any = None
    approximation: str | None = "auto"
    n_inducing: Any = "auto"
    loss: float | None = None
    n_neighbors: int = N_NEIGHBORS
    device: Any = None
    n_jobs: Any = None
    categorical_features: Any = "from_dtype"

    takes_tensors = True
    learn_likelihood = True
    kernel_per_class = False
    _units = OutputUnits()  # of y, which the kernel is in
    _handed_on: ClassVar[str] = "kernel_"  # what a fit with optimizer=None needs of another

    def _fit(self, X: np.ndarray, target: Target, weights: Any) -> Self:
        """Fit, and learn a copy of the kernel: the user's own kernel is never changed."""
        from .inducing_latent import approximations, check_approximation, check_points

        name, own, learned = type(self).__name__, self._learns_likelihood, self.optimizer is not None
        check_points(name, self.n_inducing, self.loss, X.shape[1], self._levels is not None)
        several = self.kernel_per_class or type(self.kernel) in (list, tuple) or is_compound(self.kernel)
        check_approximation(self, len(X), several and target.likelihood.n_predictors > 1)
        self.X_train_ = np.array(X) if self.copy_X_train else X
        if self.copy_X_train:  # and of all else that is known of the rows
            rows = target.likelihood.take(np.arange(len(X)))
            target = replace(target, y=np.array(target.y), likelihood=rows)
            weights = None if weights is None else np.array(weights)
        process, kernel = self._process(self.X_train_, target, weights)
        latent, said = process, list[Any]()
        for latent in approximations(self, process):
            if latent.approximates and self._own_optimizer is not None:
                raise problem(name, "a function as optimizer and an approximation", "optimizer='fmin_l_bfgs_b'")
            if not latent.approximates:
                searched = kernel if self.optimizer else None
                announce(name, X.shape[0], max(2, self.n_classes_), searched, self._handed_on, latent.device)
            # warnings of a trial are kept back, and given only if it turns out to be the last fit
            quiet = warnings.catch_warnings(record=True) if latent.is_trial else nullcontext()
            with says_when_full(name, latent.device, _DEVICE_ADVICE), quiet as heard:
                self._learn(target, latent, weights, learned, self.n_restarts_optimizer, self.random_state, own)
            said = heard or []
        for each in said:
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
        self._reported(latent, kernel)
        if latent.interrupt is not None:
            raise latent.interrupt  # with the best fit so far in place
        has_trend = latent.slopes is not None and self.optimizer is not None  # which may leave nothing to learn
        if not has_trend and self._levels is None:  # levels may be unrelated
            warn_unrelated(name, self.kernel_, self.X_train_, self.kernel is not None)
        if own and learned:
            warn_repeated(name, target.likelihood, self._fitted, weights)
        return self

    def _process(self, X: np.ndarray, target: Target, weights: Any) -> tuple[KernelLatent, Any]:
        """The latent process, and its kernel (given, or chosen by the evidence) in the units of y."""
        name, own, units = type(self).__name__, self._learns_likelihood, self._units
        device = find_device(name, self._tensor_device if self.device is None else self.device)
        if not callable(self.optimizer):
            choice(
                name, "optimizer", self.optimizer, ("fmin_l_bfgs_b", None), "Or a function, as scikit-learn calls it."
            )
        latent = KernelLatent(None, X, **read_mean(self, X, target, weights))
        warm, functions = self.warm_start and hasattr(self, "kernel_"), target.likelihood.n_predictors
        if warm:
            self._check_warm(functions)
        levels: LevelKernels | None = None
        if self._levels is not None and not warm and not is_of_columns(self.kernel):
            levels = LevelKernels.of(self._levels.places, target.scale**2 / units.sd**2)
            latent.levels = levels.times(units.sd**2)
        if warm:
            chosen = ChosenKernel(clone(self.kernel_))
        elif self.kernel is not None:
            chosen = ChosenKernel(own_kernel(name, self.kernel, X[:, latent.numeric], functions))
        elif levels is not None and not latent.numeric:
            chosen, levels, latent.levels = ChosenKernel(levels.alone()), None, None
        elif self.optimizer is not None:
            chosen = chosen_kernel(target, weights, latent, own)
        else:
            chosen = ChosenKernel(kernel_starts(target, weights, latent)[0])
        if self.kernel is None and not warm and not is_of_columns(chosen.kernel):
            chosen = chosen.divided(units.sd**2)
        if self.kernel_per_class:
            chosen = chosen.for_each(functions)
        kernel = replace(latent, levels=levels).whole(chosen.kernel)
        self.kernel_choice_ = None if chosen.trials is None else chosen.trials.frame()
        latent = replace(latent, kernel=in_units(chosen.kernel, units.sd**2), theta=chosen.theta, device=device)
        latent = replace(latent, shrinks=chosen.shrinks and not self.integrate, optimizer=self._own_optimizer)
        if self.kernel is not None and not warm and self.optimizer == "fmin_l_bfgs_b":
            latent.theta = visible_start(target, latent, own)
        return latent, kernel

    def _check_warm(self, n_functions: int) -> None:
        """Refuse a warm start from a kernel of other classes or of other categorical columns."""
        n, of_columns = len(kernels_of(self.kernel_)), is_of_columns(kernels_of(self.kernel_))
        if n not in (1, n_functions) or of_columns != (self._levels is not None or is_of_columns(self.kernel)):
            got = f"warm_start=True, and kernel_ = {self.kernel_} is of other classes or columns of levels"
            raise problem(type(self).__name__, got, "X and y of the same kind", "Fit a clone, or warm_start=False.")

    def _reported(self, latent: KernelLatent, kernel: Any) -> None:
        """Set ``kernel_``, ``mean_`` and the attributes of an approximation."""
        self.mean_ = self.mean if callable(self.mean) else latent.mean + self._shift
        self._trend_moments = None
        if kernel is not latent.kernel:
            names = names_of(kernel)  # without the units of y
            self.theta_names_ = [*names, *self.theta_names_[len(names) :]]
        self.kernel_: Any = at_theta(kernel, self.theta_)
        self.approximation_, self.approximation_loss_ = latent.table(), latent.approximation_loss

    def _fit_partitions(self, X: Any, y: Any, weight: Any, checkpoint: Any, **rows: Any) -> Self:
        from .dask_processes import fit_process

        self._levels, self.outputs_, self._units = None, None, OutputUnits()  # what another fit may have left
        fit_process(self, X, y, weight, checkpoint, **rows)
        return self

    @property
    def _learns_likelihood(self) -> bool:
        return bool(self.learn_likelihood)

    @property
    def _own_optimizer(self) -> Any:
        """The user's function, if ``optimizer`` is one."""
        return self.optimizer if callable(self.optimizer) else None

    def _whole_theta(self, theta: np.ndarray) -> np.ndarray:
        """Repeat the theta of one kernel for each class, as scikit-learn does."""
        kernels = kernels_of(self.kernel_)
        same = len(kernels) > 1 and all(one.n_dims == theta.size for one in kernels)
        return np.tile(theta, len(kernels)) if same else theta

    def _widening(self, held: list[int], n_family: int) -> str:
        if all(i >= n_family for i in held):
            return super()._widening(held, n_family)
        return (
            "Widen the bounds of the kernel (constant_value_bounds, length_scale_bounds), or change the units: scale "
            "X, and for a regressor give normalize_y=True."
        )

    def _overwrite(self, theta: np.ndarray) -> None:
        self.kernel_ = at_theta(self.kernel_, theta)

    def _take(self, found: Learned, target: Target, latent: KernelLatent) -> None:
        """Set the fitted attributes from the fit of a Dask collection."""
        self._target, self._latent, self._weights, self.integrated_ = target, latent, None, None
        self._keep(found, latent.family())
        self._reported(latent, latent.kernel)

    def save(self, path: Any) -> Any:
        check_is_fitted(self)
        if self._latent.in_partitions:
            got = "a Gaussian process fitted to a Dask collection cannot be saved"
            raise problem("save", got, "a fit in memory", "Use pickle or joblib.")
        return super().save(path)

    save.__doc__ = LatentGaussianEstimator.save.__doc__

    def summary(self) -> str:
        """A text summary of the fit: its certificate, and the error of the approximation if there is one."""
        check_is_fitted(self)
        if self.outputs_ is not None:
            return "\n\n".join(f"output {j}\n{one.summary()}" for j, one in enumerate(self.outputs_))
        lines = [f"  {'approximation':<22}{line}" for line in self._latent.sentences()]
        chosen = [f"Approximated by {self._latent.reason}"] if self._latent.reason else []
        return "\n".join([*chosen, self.solution_.summary(), *lines])

    @property
    def _centred(self) -> bool:
        return is_centred(self)

    # -- the mean ----------------------------------------------------------------------------------
    def _trend(self, part: int, slopes: bool) -> Any:
        """Mean (0) or standard deviation (1) of the slopes, or of the constant."""
        check_is_fitted(self, "theta_")
        if slopes and mean_word(self.mean) != "linear":
            raise AttributeError(f'{type(self).__name__}: coef_ is that of mean="linear", and mean = {self.mean!r}')
        if self.outputs_ is not None:
            return np.stack([one._trend(part, slopes) for one in self.outputs_])
        latent: Any = self._latent
        if self._trend_moments is None:
            self._trend_moments = trend_moments(latent, self._points())
        found = self._trend_moments[part]
        if slopes:
            return found[1:].T if is_classifier(self) else found[1:, 0]
        constant = 0.0 if part or callable(latent.mean) else latent.mean + self._shift
        return constant + (found[0] if is_classifier(self) else float(found[0, 0]))

    @property
    def coef_(self) -> np.ndarray:
        """The slopes of a linear mean, for X as it is: (D,), or (K, D) of a classifier."""
        return np.asarray(self._trend(0, True))

    @property
    def coef_std_(self) -> np.ndarray:
        """Posterior standard deviations of ``coef_``."""
        return np.asarray(self._trend(1, True))

    @property
    def intercept_(self) -> Any:
        """The mean of eta without the kernel's function, at x = 0."""
        return self._trend(0, False)

    @property
    def intercept_std_(self) -> Any:
        """Posterior standard deviation of ``intercept_``."""
        return self._trend(1, False)

    def _on_host(self, X: Any, fitting: bool) -> Any:
        """X in the host's memory, levels as numbers; a fit is computed on the device that it came from."""
        device = device_of(X)
        if fitting:
            self._tensor_device = device
        return self._encoded(X if device is None else to_numpy(X), fitting)

    def _encoded(self, X: Any, fitting: bool) -> Any:
        """X with numbers in the place of levels."""
        if fitting:
            self._levels = read_categories(type(self).__name__, self.categorical_features, X)
        return X if self._levels is None else self._levels.encoded(X)

    def _table(self, X: Any) -> np.ndarray:
        return np.asarray(validate_data(self, X, reset=False, dtype=np.float64))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = False
        return tags


@dataclass(eq=False, repr=False, kw_only=True)
class GaussianProcessClassifier(GaussianProcessEstimator, Classification):
    """Gaussian process classification: binary, or of several classes jointly by a softmax.

    It replaces ``sklearn.gaussian_process.GaussianProcessClassifier`` with one import changed. The posterior of the
    latent function is the Gaussian nearest in Kullback-Leibler divergence rather than Laplace's, and every fit has a
    certificate of convergence.

    With more than two classes the evidence is a lower bound that becomes looser as the latent variance grows, so the
    learned variance of the kernel tends to be smaller than the one that predicts best. If that matters, choose the
    variance v by cross-validation and fix it: ``ConstantKernel(v, "fixed") * RBF(...)``.

    Parameters
    ----------
    kernel : kernel of sklearn.gaussian_process.kernels, or list of K kernels, default None
        One kernel for all classes, or for K > 2 a list with one kernel for each, in the order of ``classes_``. None: a
        constant times a kernel chosen by the evidence, with learned parameters (scikit-learn's default learns nothing).
        It is an RBF, unless a Matern kernel with nu = 5/2, 3/2 or 1/2 has two nats more evidence. It has one length
        scale, which starts at a share of the typical distance between rows. Columns are divided by their standard
        deviations (``ScaledRBF``, ``ScaledMatern``) if that gains two nats. Each of at most 30 columns has its own
        length scale if there are ten rows for each column and the gain is two nats, and one more for every length
        scale beyond the first; the prior of a log length scale is then N(its start, 2^2). The choice uses at most 500
        different rows, and with fewer than 50 it is the RBF. ``kernel_choice_`` shows the evidence.
    optimizer : "fmin_l_bfgs_b", None or callable, default "fmin_l_bfgs_b"
        Learn the free hyperparameters of the kernel by the evidence, or keep them (None). A function
        ``optimizer(obj_func, initial_theta, bounds)`` returns theta and the value there, as in scikit-learn; theta ends
        with the parameters of the likelihood if they are learned.
    n_restarts_optimizer : int, default 0
        Number of further starts, drawn within the bounds of the kernel.
    n_jobs : int, None or Dask client, default None
        Workers for the restarts and for the fits of ``integrate``.
    kernel_per_class : bool, default False
        Whether each of K > 2 classes has its own copy of ``kernel``. Not available with inducing points.
    categorical_features : "from_dtype", None or sequence of names, numbers or booleans, default "from_dtype"
        The columns of X that hold levels, as in scikit-learn's ``HistGradientBoostingClassifier``; "from_dtype": the
        columns of categories or text of a data frame. Booleans are the numbers 0 and 1 unless they are named here.
        ``kernel`` applies to the other columns. Each level has its own function about a shared one (``Exchangeable``)
        and an intercept (``LevelEffect``); a new level is a new draw from the same prior. A kernel with parts
        ``OnColumns`` is used as it is.
    class_weight : None, "balanced" or dict of label to weight, default None
        Multiplies the weight of each row by the weight of its label; "balanced": N / (K * rows with that label).
    fit_intercept : bool, default True
        Add a constant with prior N(mean_, intercept_variance) to the latent function, one for each of several classes.
        It is integrated out. Without it predictions far from the data tend to even odds.
    intercept_variance : float, default 10.0
        Prior variance of the constant, in squared log odds; not learned.
    mean : None, "zero", "constant", "linear", float or callable, default None
        Prior mean of the latent function. "constant" (None with ``fit_intercept``): the log odds of all rows, plus the
        constant. "zero": 0, without a constant. "linear": the constant and a slope for each column, with prior
        N(0, slope_variance / sd_d^2) for a column of standard deviation sd_d; both are integrated out. A number, or a
        function of X (M, D) that returns (M,) or (M, K): the mean of the constant, or of the function without one.
    slope_variance : float, default 10.0
        Prior variance of the slopes of mean="linear"; not learned.
    bound : {"best", "exact", "tilted", "log-sum"}, default "best"
        Treatment of the likelihood. "exact": exact expectations, no bound; for more than two classes up to some hundred
        rows. "tilted": the tightest convex bound. "log-sum": the bound of the paper. "best": "exact" for two classes,
        "tilted" for more.
    warm_start : bool, default False
        Start the next ``fit`` at the kernel of the last one.
    copy_X_train : bool, default True
        Whether ``X_train_`` is a copy of X; y, weights and exposures are copied with it.
    tol : float, default 1e-10
        Relative duality gap at which every fit ends.
    random_state : int, RandomState or None
        Seed of the restarts.
    progress : bool, default False
        Show a progress line.
    integrate : None, True, "grid" or "ccd", default None
        Integrate over the hyperparameters of the kernel (``fenchel.integrate``): predictions are then mixtures over
        several fits. The prior of each log hyperparameter is N(its start, 2^2), also for ``theta_``.
    approximation : "auto", None, "inducing" or "neighbours", default "auto"
        None: the exact process, with cost N^3. "inducing": through M inducing points, with cost N M^2 and a bound on
        the loss of elbo. "neighbours": each row given its nearest rows (Vecchia), for short length scales in one to
        three columns, without a bound. "auto": inducing points for more than 2,000 rows, or neighbours if there are at
        most three columns and 800 points lose more than ten times ``loss``.
    n_inducing : "auto", int or array (M, D), default "auto"
        The inducing points or their number. "auto" doubles 100 until the loss is below ``loss``, a step of the search
        would take some seconds, or there are 2,000.
    loss : float, optional
        Nats of elbo that inducing points may lose. Default: a thousandth of a nat for each row.
    n_neighbors : int, default 20
        Number of rows on which "neighbours" conditions each row. The time grows with its square.
    device : None or str such as "cuda" or "cpu", default None
        Device on which torch fits and predicts, in float64. None: numpy, or the GPU that holds X. Results are arrays of
        numpy.

    Attributes
    ----------
    kernel_ : kernel
        The kernel with its learned hyperparameters; with a kernel for each class a ``CompoundKernel``.
    coef_, coef_std_ : arrays (1, D) or (K, D)
        Posterior means and standard deviations of the slopes of mean="linear", in the units of X.
    intercept_, intercept_std_ : arrays (1,) or (K,)
        Posterior mean and standard deviation of the prior mean at x = 0.
    kernel_choice_ : DataFrame or None
        The kernels that were compared for kernel=None: kernel, lengths, scaled (columns divided by their standard
        deviations), log evidence, chosen.
    integrated_ : Integrated or None
        The posterior over the hyperparameters, with ``integrate``.
    mean_ : float or array (K,)
        Prior mean of the constant: with an intercept the log odds of all rows, or centred log shares; else 0.
    classes_, n_classes_, X_train_, n_features_in_, feature_names_in_
        As in scikit-learn.
    approximation_loss_ : float
        Upper bound on the elbo of the exact process minus ``elbo_``, in nats: 0 without an approximation, infinite for
        neighbours. Above 100,000 rows it is estimated from sampled rows; ``approximation_`` has its standard error.
    approximation_ : DataFrame or None
        Of inducing points: n_inducing, elbo, bound, standard_error (0 if the bound is proved, else it is estimated from
        sampled rows) and seconds. Of neighbours: n_neighbors, elbo and seconds, also with twice as many.
    elbo_, gap_, n_iter_, solution_, theta_, converged_
        See ``LatentGaussianEstimator``.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from fenchel.estimators import GaussianProcessClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = GaussianProcessClassifier().fit(X[::3], y[::3])
    >>> model.converged_, bool((model.predict(X) == y).mean() > 0.9)
    (True, True)
    """

    bound: str = "best"
    class_weight: Any = None
    mean: Any = None
    kernel_per_class: bool = False


@dataclass(eq=False, repr=False, kw_only=True)
class GaussianProcessPoissonRegressor(GaussianProcessEstimator, Counts):
    """Poisson regression whose log rate is a Gaussian process: y ~ Poisson(exposure * exp(f(x))).

    Parameters
    ----------
    kernel, optimizer, n_restarts_optimizer, fit_intercept, intercept_variance, warm_start, copy_X_train, tol
    random_state, progress, integrate, approximation, n_inducing, loss, n_neighbors, device, n_jobs, slope_variance
    categorical_features
        As in ``GaussianProcessClassifier``; the intercept is that of the log rate.
    mean : "rate", "zero", "constant", "linear", float or callable, default "rate"
        Prior mean of the log rate. "rate": the log of the overall rate; the others as in ``GaussianProcessClassifier``.

    Attributes
    ----------
    kernel_, kernel_choice_, mean_, X_train_, approximation_, approximation_loss_, n_features_in_, feature_names_in_
        As in ``GaussianProcessClassifier``.
    coef_, coef_std_ : arrays (D,)
        Posterior means and standard deviations of the slopes of mean="linear".
    intercept_, intercept_std_ : float
        Posterior mean and standard deviation of the prior mean at x = 0.
    elbo_, gap_, n_iter_, solution_, theta_, converged_
        See ``LatentGaussianEstimator``.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.estimators import GaussianProcessPoissonRegressor
    >>> x = np.linspace(0, 6, 40)[:, None]
    >>> y = np.random.default_rng(0).poisson(np.exp(1 + np.sin(2 * x[:, 0])))
    >>> model = GaussianProcessPoissonRegressor().fit(x, y)
    >>> model.predict_quantiles(x[:1], [0.5]).shape
    (1, 1)
    """

    mean: Any = "rate"

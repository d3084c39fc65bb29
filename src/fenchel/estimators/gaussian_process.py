"""Gaussian processes with the interface of scikit-learn's: kernels in, certificates out."""

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
from ..kernels import at_theta, kernels_of, names_of
from ..linalg.arrays import to_numpy
from ..linalg.devices import device_of, find_device, says_when_full
from .base import LatentGaussianEstimator, validate_data
from .categories import read_categories
from .chosen_kernel import ChosenKernel, chosen_kernel, own_kernel, warn_unrelated
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
    """What Gaussian processes share: their parameters, and the fit of a target."""

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
        """Fit, and learn a kernel that is ours alone: the user's is never changed."""
        from .inducing_latent import approximations, check_points

        name, own, learned = type(self).__name__, self._learns_likelihood, self.optimizer is not None
        check_points(name, self.n_inducing, self.loss, X.shape[1], self._levels is not None)
        self.X_train_ = np.array(X) if self.copy_X_train else X
        process, kernel = self._process(self.X_train_, target, weights)
        latent, said = process, list[Any]()
        for latent in approximations(self, process):
            if latent.approximates and self._own_optimizer is not None:
                raise problem(name, "a function as optimizer and an approximation", "optimizer='fmin_l_bfgs_b'")
            if not latent.approximates:
                n_theta = kernel.n_dims if self.optimizer else 0
                announce(name, X.shape[0], max(2, self.n_classes_), n_theta, self._handed_on, latent.device)
            # what is said of a fit that is not the last one is of no use
            quiet = warnings.catch_warnings(record=True) if latent.is_trial else nullcontext()
            with says_when_full(name, latent.device, _DEVICE_ADVICE), quiet as heard:
                self._learn(target, latent, weights, learned, self.n_restarts_optimizer, self.random_state, own)
            said = heard or []
        for each in said:
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
        self._reported(latent, kernel)
        if latent.interrupt is not None:
            raise latent.interrupt  # with the best fit so far in place
        beside = latent.slopes is not None and self.optimizer is not None  # a trend, which may leave nothing to learn
        if not beside and self._levels is None:  # levels may be unrelated
            warn_unrelated(name, self.kernel_, self.X_train_, self.kernel is not None)
        return self

    def _process(self, X: np.ndarray, target: Target, weights: Any) -> tuple[KernelLatent, Any]:
        """The process, and its kernel as given or chosen by the evidence, in the units of y."""
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
        return latent, kernel

    def _check_warm(self, n_functions: int) -> None:
        """Whether the kernel of the last fit, where a warm start begins, is one of such classes and columns."""
        n, of_columns = len(kernels_of(self.kernel_)), is_of_columns(kernels_of(self.kernel_))
        if n not in (1, n_functions) or of_columns != (self._levels is not None or is_of_columns(self.kernel)):
            got = f"warm_start=True, and kernel_ = {self.kernel_} is of other classes or columns of levels"
            raise problem(type(self).__name__, got, "X and y of the same kind", "Fit a clone, or warm_start=False.")

    def _reported(self, latent: KernelLatent, kernel: Any) -> None:
        """The kernel as learned, and what an approximation costs."""
        self.mean_ = self.mean if callable(self.mean) else latent.mean + self._shift
        self._trend_moments = None
        names = names_of(kernel)  # without the units of y
        self.theta_names_ = [*names, *self.theta_names_[len(names) :]]
        self.kernel_: Any = at_theta(kernel, self.theta_[: len(names)])
        self.approximation_, self.approximation_loss_ = latent.table(), latent.approximation_loss

    def _fit_partitions(self, X: Any, y: Any, weight: Any, checkpoint: Any, **rows: Any) -> Self:
        from .dask_processes import fit_process

        self._levels = None
        fit_process(self, X, y, weight, checkpoint, **rows)
        return self

    @property
    def _learns_likelihood(self) -> bool:
        return bool(self.learn_likelihood)

    @property
    def _own_optimizer(self) -> Any:
        """The user's function, where learning is by one."""
        return self.optimizer if callable(self.optimizer) else None

    def _whole_theta(self, theta: np.ndarray) -> np.ndarray:
        """That of one kernel is one for each class, as in scikit-learn."""
        kernels = kernels_of(self.kernel_)
        same = len(kernels) > 1 and all(one.n_dims == theta.size for one in kernels)
        return np.tile(theta, len(kernels)) if same else theta

    def _overwrite(self, theta: np.ndarray) -> None:
        self.kernel_ = at_theta(self.kernel_, theta)

    def _take(self, found: Learned, target: Target, latent: KernelLatent) -> None:
        """Keep what a fit of partitions found."""
        self._target, self._latent, self._weights, self.integrated_ = target, latent, None, None
        self._keep(found, latent.family())
        self._reported(latent, latent.kernel)

    def save(self, path: Any) -> Any:
        check_is_fitted(self)
        if self._latent.in_partitions:
            got = "a Gaussian process of rows in partitions cannot be saved"
            raise problem("save", got, "a fit in memory", "pickle and joblib keep it.")
        return super().save(path)

    save.__doc__ = LatentGaussianEstimator.save.__doc__

    def summary(self) -> str:
        """A page on the fit: how far it is from the best Gaussian, and what an approximation of the process costs."""
        check_is_fitted(self)
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
    """Gaussian process classification: binary, or all classes jointly by one softmax.

    A replacement for ``sklearn.gaussian_process.GaussianProcessClassifier`` with one import changed. The approximation
    is the best Gaussian in Kullback and Leibler's sense rather than Laplace's, and every fit carries a proof of
    convergence.

    With more than two classes the evidence is a bound that loosens as the latent variance grows, so that the variance
    of a learned kernel tends to be smaller than the one that predicts best. Where that matters keep it,
    ``ConstantKernel(v, "fixed") * RBF(...)``, with v chosen by cross-validation.

    Parameters
    ----------
    kernel : kernel of sklearn.gaussian_process.kernels, or a list of K of them, optional
        One for all classes; or one for each of more than two, in the order of ``classes_``, whose hyperparameters are
        learned by themselves. Default: a constant times a kernel that the evidence chooses, its parameters learned
        (scikit-learn's own default learns nothing): RBF, unless Matern of 5/2, 3/2 or 1/2 gains two nats, with one
        length, which starts at a share of the typical distance between rows; columns as they are, or divided by their
        standard deviations
        (``ScaledRBF``, ``ScaledMatern``) where that gains two nats; a length for each of at most 30 columns where these
        gain two nats and one more for each beyond the first, with ten rows a column. The log of each is then a priori
        N(its start, 2^2). ``kernel_choice_`` says by how much. More than 500 different rows choose by 500 of them,
        fewer than 50 have an RBF.
    optimizer : "fmin_l_bfgs_b", None or callable
        Learn the kernel's free hyperparameters by the evidence, or keep them. A function ``optimizer(obj_func,
        initial_theta, bounds)`` returns theta and the value there, as in scikit-learn; theta goes on with the
        likelihood's own parameters where they are learned.
    n_restarts_optimizer : int
        Further starts within the kernel's bounds.
    n_jobs : int, None or Dask client
        Who runs restarts, and fits over which ``integrate`` integrates, side by side. One start needs no more than one.
    kernel_per_class : bool
        Whether each of more than two classes has a copy of ``kernel`` with hyperparameters of its own, which start
        where those of one for all do. Not through inducing points.
    categorical_features : "from_dtype", None or sequence of names, numbers or booleans
        The columns of X whose values are levels, as in scikit-learn's ``HistGradientBoostingClassifier``; "from_dtype":
        the categories and text of a data frame. Booleans are 0 and 1 unless they are named. ``kernel`` is that of the
        other columns. Each level has a function of its own about one that all share (``Exchangeable``), and an
        intercept (``LevelEffect``); a level that ``fit`` has not seen is one more draw. A kernel with parts
        ``OnColumns`` is taken as it is.
    class_weight : None, "balanced" or dict of label to weight
        Multiplies the weight of each row by that of its label; "balanced": N / (K times the number of its rows).
    fit_intercept : bool
        Add a constant to the latent function, integrated out: a priori N(mean_, intercept_variance), one a class for
        several. Without it a kernel that falls to 0 far from the data predicts even odds there.
    intercept_variance : float
        Never learned; wide on the scale of log odds.
    mean : None, "zero", "constant", "linear", float or callable
        The prior mean of the latent function. "constant" is what None is with ``fit_intercept``: the log odds of all
        rows, and a constant about them. "zero": 0 and no constant. "linear": the constant and a slope for each column,
        a priori N(0, slope_variance / sd_d^2) for a column of standard deviation sd_d; both are integrated out exactly,
        and go on beyond the rows of ``fit`` with the uncertainty that they have (``coef_``). A number, or a function of
        X (M, D) that gives (M,) or (M, K), is the mean of the constant, or without one of the function.
    slope_variance : float
        Of mean="linear"; never learned.
    bound : {"best", "exact", "tilted", "log-sum"}
        "best": exact expectations, no bound at all, for two classes; the tightest convex bound, "tilted", for more.
        "exact" is open to more classes too, up to some hundred rows: all latents of all classes are one system.
        "log-sum" is the paper's bound.
    warm_start : bool
        Start the next ``fit`` at the kernel of the last.
    copy_X_train : bool
    tol : float
        Relative duality gap of every fit.
    random_state : int, RandomState or None
        Of the restarts.
    progress : bool
        Draw a live line while fitting.
    integrate : None, True, "grid" or "ccd"
        Integrate over the kernel's hyperparameters (``fenchel.integrate``): predictions are then mixtures
        over fits at many of them. Each log of one is a priori N(its start, 2^2), which ``theta_`` is learned under
        too.
    approximation : "auto", None, "inducing" or "neighbours"
        "inducing": the function is seen through M points, at a cost that grows with N M^2; a bound says how much of the
        elbo that loses against the process itself. "neighbours": the value at each row is given those at its nearest
        rows alone (Vecchia); for short lengths in one to three columns, without a bound. None: the process itself, N^3.
        "auto": inducing points for more than 2,000 rows; neighbours in at most three columns where 800 points cost more
        than ten times ``loss``.
    n_inducing : "auto", int or array (M, D)
        How many points; "auto": doubled from 100 until the bound is below ``loss``, or a step of the search would take
        some seconds, or to 2,000; or the points.
    loss : float, optional
        Nats of elbo that the points may cost. Default: a thousandth of a nat a row, which moves a mean log score by
        less than is ever told.
    n_neighbors : int
        Of "neighbours": how many rows each one is conditioned on. The time grows with the square; with all but one of
        the rows it is the process itself.
    device : None, "cuda", "cuda:0", "cpu", ...
        Where torch computes the fit and predictions, in float64; None: numpy, or the GPU that X is on. Matrices of the
        rows stay there, answers are numpy's.

    Attributes
    ----------
    kernel_ : the kernel with its learned hyperparameters
        With a kernel for each class a ``CompoundKernel`` of scikit-learn's; ``kernel_.kernels`` has them.
    coef_, coef_std_ : arrays (1, D) or (K, D)
        Posterior means and standard deviations of the slopes of mean="linear", for X as it is.
    intercept_, intercept_std_ : arrays (1,) or (K,)
        Of eta at x = 0 without the function of the kernel.
    kernel_choice_ : DataFrame or None
        What was tried where no kernel is given: kernel, lengths, scaled (columns in units of their standard
        deviations), log evidence, chosen.
    integrated_ : Integrated or None
        The posterior over the hyperparameters too; ``integrated_.theta`` has theirs.
    mean_ : float or array (K,)
        The prior mean: with an intercept the log odds of all rows, or the logs of the classes' shares; 0 without one.
    classes_, n_classes_, X_train_, n_features_in_, feature_names_in_
    approximation_loss_ : float
        How far ``elbo_`` is below that of the process itself, at most; 0 without an approximation, infinite where no
        bound is known, as by neighbours.
    approximation_ : DataFrame or None
        n_inducing, elbo, bound, standard_error (0: proved; else an estimate from sampled rows) and seconds. By
        neighbours: n_neighbors, elbo and seconds, of the fit and with twice as many at its theta.
    elbo_, gap_, n_iter_, solution_, theta_, converged_ : see ``LatentGaussianEstimator``

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
    """Counts with a Gaussian process for the log rate: y ~ Poisson(exposure * exp(f(x))).

    Parameters
    ----------
    kernel, optimizer, n_restarts_optimizer, fit_intercept, intercept_variance, warm_start, copy_X_train, tol
    random_state, progress, integrate, approximation, n_inducing, loss, n_neighbors, device, n_jobs, slope_variance
    categorical_features
        As in ``GaussianProcessClassifier``; the intercept is of the log rate, about ``mean_``.
    mean : "rate", "zero", "constant", "linear", float or callable
        The prior mean of the log rate: that of the overall rate, or as in ``GaussianProcessClassifier``.

    Attributes
    ----------
    kernel_, kernel_choice_, mean_, X_train_, n_features_in_, feature_names_in_
    coef_, coef_std_ : arrays (D,), of mean="linear"
    intercept_, intercept_std_ : float
    approximation_, approximation_loss_
    elbo_, gap_, n_iter_, solution_, theta_, converged_ : see ``LatentGaussianEstimator``

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

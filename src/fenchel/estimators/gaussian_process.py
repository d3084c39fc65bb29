"""Gaussian processes with the interface of scikit-learn's: kernels in, certificates out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from ..checks import choice, positive, problem
from ..hyperparameters import Family, KernelCovariance, Learned
from ..inputs.observations import Target
from ..linalg.arrays import Array, to_numpy
from ..linalg.dense import semidefinite_root
from ..linalg.devices import device_of, find_device, on_device, says_when_full
from ..posterior import Posterior
from ..priors.base import NewRows
from .base import LatentGaussianEstimator, validate_data
from .chosen_kernel import ChosenKernel, chosen_kernel, own_kernel, warn_unrelated
from .classification import Classification
from .counts import Counts
from .latent import Latent, with_prior
from .lengths import announce, kernel_starts
from .outputs import OutputUnits, in_units, learn_by_function

_HELD_NOISE = tuple(np.log([1e6, 1e5, 1e4, 1e3, 1e2]))  # logs above its lowest, of noise that cannot be told
_UNTOLD_NOISE = float(np.log(1e4))  # below, a search that did not converge may be rounding's doing
_ROUNDING = 1e-9  # logs: between a bound and a noise that ended there
_BLOCK = 1 << 21  # entries of the covariance of new rows with the training rows made at once: 16 MiB
_DEVICE_BLOCK = 1 << 26  # the same on a device
_DEVICE_ADVICE = (
    'Use approximation="inducing", fewer points (n_inducing=) or fewer rows; or device=None, in the memory of the host.'
)


@dataclass
class KernelLatent(Latent):
    """eta = mean + level + f(x), level ~ N(0, v), f ~ GP(0, kernel).

    Attributes
    ----------
    kernel : where learning starts
    X : array (N, D)
    mean : float, or array (K,) for several classes
    level : float
        The prior variance v of the constant; 0 for none.
    theta : array, optional
        Where learning starts instead, the likelihood's own parameters included.
    shrinks : bool
        The log of each length is a priori normal about its start (``with_prior``); the kernel is a constant
        times one of many lengths.
    device : torch's device where the fit is computed, optional
    optimizer : callable, optional
        A user's search for theta, as scikit-learn calls it (``own_optimizer``).
    """

    kernel: Any
    X: np.ndarray
    mean: Any
    level: float
    theta: np.ndarray | None = None
    shrinks: bool = False
    device: Any = None
    optimizer: Any = None
    approximates: ClassVar[bool] = False
    interrupt: KeyboardInterrupt | None = None  # that ended the fit, of which the best so far is kept

    @property
    def approximation_loss(self) -> float:
        """Nats of elbo that an approximation of the process costs, at most."""
        return 0.0

    def table(self) -> Any:
        """Of the approximations that were tried; None for the process itself."""
        return None

    def rows(self) -> np.ndarray:
        return self.X

    @cached_property
    def inputs(self) -> Array:
        """X where the fit is computed."""
        return on_device(self.X, self.device)

    def family(self) -> KernelCovariance:
        # the mean as an offset: classes share a matrix
        out = KernelCovariance(self.kernel, self.inputs, offset=np.reshape(self.mean, (1, -1)), level=self.level)
        return with_prior(out, range(1, self.kernel.n_dims)) if self.shrinks else out

    @cached_property
    def _asked(self) -> tuple[KernelCovariance, int]:
        return self.family(), self.kernel.n_dims

    def new_rows(self, theta: np.ndarray, table: np.ndarray) -> NewRows:
        family, n_theta = self._asked
        return family.new_rows(theta[:n_theta], table)

    def learn(self, target: Target, family: Family, own: bool, **options: Any) -> Learned:
        """As any latent; but where y has no noise that can be told, it is held at a little, and the kernel learned.

        At the lowest noise the covariance is as singular as doubles allow, and rounding moves the slopes of the kernel:
        more so the larger its variance is. Where the search does not converge there, the noise is held ever lower, from
        a level at which it does, and the last search that converges is kept.
        """
        if self.optimizer is not None:
            return learn_by_function(self.optimizer, self.theta, target, family, own, options)
        found = super().learn(target, family, own, theta=self.theta, **options)
        if not found.converged and self.theta is not None:  # beside the top rounding may hide what rises
            found = max(found, super().learn(target, family, own, **options), key=lambda one: one.converged)
        noise = np.array([entry.size for entry in found.likelihood.entries()])  # which entry of its theta is the noise
        if not (own and noise.any()):
            return found
        above = found.likelihood.theta - target.likelihood.theta_bounds(target.y)[:, 0]
        if above[noise].min() > (_ROUNDING if found.converged else _UNTOLD_NOISE):
            return found
        best, latent = found, self
        for level in _HELD_NOISE[-1:] if found.converged else _HELD_NOISE:
            likelihood = found.likelihood.with_theta(found.likelihood.theta + np.where(noise, level - above, 0.0))
            held = replace(target, likelihood=likelihood)
            again = super(KernelLatent, latent).learn(held, latent.family(), False, **options)
            if not again.converged:
                break
            best, latent = again, replace(self, kernel=self.kernel.clone_with_theta(again.theta))
        return best

    def joint_covariance(self, posterior: Posterior, theta: np.ndarray, table: np.ndarray) -> np.ndarray:
        family, n_theta = self._asked
        own = theta[:n_theta]
        cross = family.new_rows(own, table).cross
        return to_numpy(posterior.predict_covariance(cross, family.covariance_at(own, table)))

    def draws(
        self, posterior: Posterior, theta: np.ndarray, table: np.ndarray, size: int, rng: np.random.Generator
    ) -> np.ndarray:
        mean, _ = self.moments(posterior, theta, table, mean_only=True)
        root = semidefinite_root(self.joint_covariance(posterior, theta, table))
        return np.asarray(mean[:, None] + root @ rng.standard_normal((root.shape[1], size)))

    def blocks(self, table: np.ndarray) -> Iterable[np.ndarray]:
        """So many that no covariance with the training rows is ever whole."""
        step = max(1, (_BLOCK if self.device is None else _DEVICE_BLOCK) // self.X.shape[0])
        return (table[i : i + step] for i in range(0, table.shape[0], step))


@dataclass(eq=False, repr=False)
class GaussianProcessEstimator(LatentGaussianEstimator):
    """What Gaussian processes share: their parameters, and the fit of a target."""

    kernel: Any = None
    _: KW_ONLY
    optimizer: Any = "fmin_l_bfgs_b"
    n_restarts_optimizer: int = 0
    fit_intercept: bool = True
    intercept_variance: float = 10.0
    warm_start: bool = False
    copy_X_train: bool = True
    tol: float = 1e-10
    random_state: Any = None
    progress: bool = False
    integrate: Any = None
    approximation: str | None = "auto"
    n_inducing: Any = "auto"
    loss: float | None = None
    device: Any = None
    n_jobs: Any = None

    takes_tensors = True
    learn_likelihood = True
    _units = OutputUnits()  # of y, which the kernel is in
    _handed_on: ClassVar[str] = "kernel_"  # what a fit with optimizer=None needs of another

    def _fit(self, X: np.ndarray, target: Target, weights: Any) -> Self:
        """Fit, and learn a kernel that is ours alone: the user's is never changed."""
        from .inducing_latent import inducing_or_exact

        name, own, learned = type(self).__name__, self._learns_likelihood, self.optimizer is not None
        self.X_train_ = np.array(X) if self.copy_X_train else X
        latent, kernel = self._process(self.X_train_, target, weights)
        latent = inducing_or_exact(name, latent, self.approximation, self.n_inducing, self.loss)
        if latent.approximates and self._own_optimizer is not None:
            raise problem(name, "a function as optimizer and inducing points", "optimizer='fmin_l_bfgs_b'")
        if not latent.approximates:
            n_theta = kernel.n_dims if self.optimizer else 0
            announce(name, X.shape[0], max(2, self.n_classes_), n_theta, self._handed_on, latent.device)
        with says_when_full(name, latent.device, _DEVICE_ADVICE):
            self._learn(target, latent, weights, learned, self.n_restarts_optimizer, self.random_state, own)
        self._reported(latent, kernel)
        if latent.interrupt is not None:
            raise latent.interrupt  # with the best fit so far in place
        warn_unrelated(name, self.kernel_, self.X_train_)
        return self

    def _process(self, X: np.ndarray, target: Target, weights: Any) -> tuple[KernelLatent, Any]:
        """The process, and its kernel as given or chosen by the evidence, in the units of y."""
        name, own, given, units = type(self).__name__, self._learns_likelihood, self.mean, self._units
        device = find_device(name, self._tensor_device if self.device is None else self.device)
        if isinstance(given, str):
            choice(name, "mean", given, (type(self).mean,), "Or a number.")
        mean = target.level if self._centred else units.mean + units.sd * float(given or 0.0)
        if not callable(self.optimizer):
            choice(
                name, "optimizer", self.optimizer, ("fmin_l_bfgs_b", None), "Or a function, as scikit-learn calls it."
            )
        v = float(positive(name, "intercept_variance", np.float64(self.intercept_variance)))
        level = v * target.scale**2 if self.fit_intercept and not target.likelihood.ordered else 0.0
        latent = KernelLatent(None, X, mean, level)
        warm = self.warm_start and hasattr(self, "kernel_")
        if warm:
            chosen = ChosenKernel(clone(self.kernel_))
        elif self.kernel is not None:
            chosen = ChosenKernel(own_kernel(name, self.kernel, X))
        elif self.optimizer is not None:
            chosen = chosen_kernel(target, weights, latent, own)
        else:
            chosen = ChosenKernel(kernel_starts(target, weights, latent)[0])
        if self.kernel is None and not warm:
            chosen = chosen.divided(units.sd**2)
        kernel = chosen.kernel
        self.kernel_choice_ = None if chosen.trials is None else chosen.trials.frame()
        latent = replace(latent, kernel=in_units(kernel, units.sd**2), theta=chosen.theta, device=device)
        latent = replace(latent, shrinks=chosen.shrinks and not self.integrate, optimizer=self._own_optimizer)
        return latent, kernel

    def _reported(self, latent: KernelLatent, kernel: Any) -> None:
        """The kernel as learned, and what an approximation costs."""
        self.mean_ = latent.mean + self._shift
        if self._units.sd != 1.0:
            self.theta_names_ = [each.removeprefix("k2__") for each in self.theta_names_]
        self.kernel_: Any = kernel.clone_with_theta(self.theta_[: kernel.n_dims])
        self.approximation_, self.approximation_loss_ = latent.table(), latent.approximation_loss

    def _fit_partitions(self, X: Any, y: Any, weight: Any, checkpoint: Any, **rows: Any) -> Self:
        from .dask_processes import fit_process

        fit_process(self, X, y, weight, checkpoint, **rows)
        return self

    @property
    def _learns_likelihood(self) -> bool:
        return bool(self.learn_likelihood)

    @property
    def _own_optimizer(self) -> Any:
        """The user's function, where learning is by one."""
        return self.optimizer if callable(self.optimizer) else None

    def _overwrite(self, theta: np.ndarray) -> None:
        self.kernel_.theta = theta

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
        return "\n".join([self.solution_.summary(), *lines])

    @property
    def _centred(self) -> bool:
        return bool(self.fit_intercept) if self.mean is None else isinstance(self.mean, str)

    def _on_host(self, X: Any, fitting: bool) -> Any:
        """X in the host's memory; a fit is computed on the device that it came from."""
        device = device_of(X)
        if fitting:
            self._tensor_device = device
        return X if device is None else to_numpy(X)

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
    kernel : kernel of sklearn.gaussian_process.kernels, optional
        Default: a constant times a kernel that the evidence chooses, its parameters learned (scikit-learn's own
        default learns nothing): RBF, unless Matern of 5/2, 3/2 or 1/2 gains two nats, with one length, which starts at
        a share of the typical distance between rows; columns as they are, or divided by their standard deviations
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
    class_weight : None, "balanced" or dict of label to weight
        Multiplies the weight of each row by that of its label; "balanced": N / (K times the number of its rows).
    fit_intercept : bool
        Add a constant to the latent function, integrated out: a priori N(mean_, intercept_variance), one a class for
        several. Without it a kernel that falls to 0 far from the data predicts even odds there.
    intercept_variance : float
        Never learned; wide on the scale of log odds.
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
    approximation : "auto", None or "inducing"
        "inducing": the function is seen through M points, at a cost that grows with N M^2; a bound says how much of the
        elbo that loses against the process itself. None: the process itself, N^3. "auto": inducing points for more than
        2,000 rows.
    n_inducing : "auto", int or array (M, D)
        How many points; "auto": doubled from 100 until the bound is below ``loss``, or a step of the search would take
        some seconds, or to 2,000; or the points.
    loss : float, optional
        Nats of elbo that the points may cost. Default: a thousandth of a nat a row, which moves a mean log score by
        less than is ever told.
    device : None, "cuda", "cuda:0", "cpu", ...
        Where torch computes the fit and predictions, in float64; None: numpy, or the GPU that X is on. Matrices of the
        rows stay there, answers are numpy's.

    Attributes
    ----------
    kernel_ : the kernel with its learned hyperparameters
    kernel_choice_ : DataFrame or None
        What was tried where no kernel is given: kernel, lengths, scaled (columns in units of their standard
        deviations), log evidence, chosen.
    integrated_ : Integrated or None
        The posterior over the hyperparameters too; ``integrated_.theta`` has theirs.
    mean_ : float or array (K,)
        The prior mean: with an intercept the log odds of all rows, or the logs of the classes' shares; 0 without one.
    classes_, n_classes_, X_train_, n_features_in_, feature_names_in_
    approximation_loss_ : float
        How far ``elbo_`` is below that of the process itself, at most; 0 without an approximation.
    approximation_ : DataFrame or None
        n_inducing, elbo, bound, standard_error (0: proved; else an estimate from sampled rows) and seconds.
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


@dataclass(eq=False, repr=False, kw_only=True)
class GaussianProcessPoissonRegressor(GaussianProcessEstimator, Counts):
    """Counts with a Gaussian process for the log rate: y ~ Poisson(exposure * exp(f(x))).

    Parameters
    ----------
    kernel, optimizer, n_restarts_optimizer, fit_intercept, intercept_variance, warm_start, copy_X_train, tol
    random_state, progress, integrate, approximation, n_inducing, loss, device, n_jobs
        As in ``GaussianProcessClassifier``; the intercept is of the log rate, about ``mean_``.
    mean : "rate" or float
        The prior mean of the log rate: that of the overall rate, or a number.

    Attributes
    ----------
    kernel_, kernel_choice_, mean_, X_train_, n_features_in_, feature_names_in_
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

    mean: str | float = "rate"

"""Probabilistic PCA of any table: z_r ~ N(0, I), eta_r = W z_r + b, with a likelihood for each column.

Columns may be yes or no, counts, ordered levels, categories or real numbers, and any cell may be missing. The columns
are read in ``factors/columns.py``, the rows fitted in ``factors/factor_model.py``, W and b learned in
``factors/table_evidence.py``; this file has the estimator.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from ..checks import as_pandas, callers_line, choice, count, numeric, problem, refuse_device
from ..distributed import is_dask
from ..factors.columns import Column, FactorTable, is_softmax, read
from ..factors.prediction import cells, draw, lists_levels, means, summaries, typical
from ..factors.reading import is_frame, plain_array
from ..factors.selection import by_evidence, fitted
from ..factors.starts import units
from ..files import StatedEstimator, Stored, searched, stated
from ..likelihoods.ordinal import Cumulative
from ..linalg.arrays import ArrayLike

if TYPE_CHECKING:
    from ..factors.factor_model import Parameters, RowFits

_ROW_TOL = 1e-12  # relative gap of fits of rows, so small that a score does not depend on other rows


class FoundFactors(NamedTuple):
    """The result of the search for factors; ``parameters`` refer to standardised columns."""

    n_components: int
    parameters: Parameters
    strength: float
    elbo: float
    gap: float
    trace: list[float]
    n_iter: int
    converged: bool
    status: str

    def numbers(self) -> dict[str, Any]:
        """The result as numbers for a file."""
        return {**self._asdict(), "parameters": vars(self.parameters)}

    @classmethod
    def restored(cls, numbers: dict[str, Any]) -> FoundFactors:
        """The result from what ``numbers`` returned."""
        from ..factors.factor_model import Parameters

        own = {name: numbers[name] for name in cls._fields}
        return cls(**{**own, "parameters": Parameters(**numbers["parameters"])})


class ProbabilisticPCA(Stored, StatedEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Factor analysis of a table of binary, count, ordinal, categorical and real columns with missing cells.

    The posterior of the factors of each row is found by a convex problem with a certificate; missing cells are left
    out, not filled in. With complete real columns this is factor analysis (``noise="column"``) or Tipping and Bishop's
    probabilistic PCA (``noise="shared"``).

    Parameters
    ----------
    n_components : "auto" or int, default "auto"
        Number of factors. "auto" tries 1, 2, ... up to 10 and takes the one with the largest evidence, with loadings
        integrated out (``select_components`` shows all). It needs a ``strength`` above 0.
    likelihood : {"auto", "bernoulli", "poisson", "multinomial", "ordinal", "gaussian"}, list or dict, default "auto"
        One for all columns, a list, or a dict by column. Other names and any ``Likelihood`` are allowed, too, but are
        slower and cannot be combined with multinomial columns. "auto" depends on the dtype: bool and 0/1 are bernoulli;
        ordered categories ordinal; text and other categories bernoulli with two levels, else multinomial; numbers that
        are not whole gaussian. Whole numbers of an integer dtype, or with missing cells (which make pandas turn
        integers into floats), are poisson, ordinal or multinomial, whichever has more evidence, if they have up to 12
        values; with more poisson or gaussian. ``columns_table`` says how each column was read and why, and a warning
        names those for which it is a guess. Row numbers, dates and numbers kept as text are refused.
    bound : {"tilted", "log-sum", "exact"}, default "tilted"
        Bound for bernoulli and ordinal columns. "log-sum" is that of the paper, "exact" has no bound (with a
        multinomial column it means "tilted", because the predictors of such a cell are correlated, which only the dual
        allows).
    strength : "learned" or float >= 0, default "learned"
        Prior precision of every loading, with gaussian columns in units of their standard deviation (with
        ``noise="shared"`` of their root mean square).
    noise : {"column", "shared"}, default "column"
        One noise variance for each gaussian column, or one for all.
    n_init : int, default 1
        Number of starts: the first from the principal components, others at random; the best result is used.
    tol : float
        Relative duality gap of the fits of rows while learning.
    max_iter : int
        Largest number of steps of each search.
    random_state : int, RandomState or None
        Seed of the random starts.
    verbose : bool
        Show progress.

    Attributes
    ----------
    components_ : array (n_components, P)
        Loadings W': orthogonal, the longest first, each with its largest entry positive. P predictors: one for each
        column, K - 1 for a multinomial column of K levels, relative to the last one.
    offset_ : array (P,)
        b, the predictors at zero factors; 0 for ordinal columns, which have cutpoints.
    cutpoints_ : dict
        K - 1 cutpoints for each ordinal column, by its name: P(level <= k) = 1 / (1 + exp(eta - cutpoint_k)).
    noise_variance_ : array (D,)
        Noise variances of gaussian columns; NaN for others.
    likelihoods_ : dict
        The likelihood of each column, by its name, with its learned parameters.
    columns_ : tuple of Column
        Name, likelihood and levels of every column, and how it was read; see ``columns_table``.
    predictor_names_ : list of P str
    strength_ : float
    elbo_, gap_ : float
        Lower bound on the log evidence of the table, and proved bound on its distance from that of the best Gaussians.
    n_iter_ : int
        Number of steps of the searches. ``trace_`` has the objective after each step of the last one.
    converged_ : bool
    n_features_in_, feature_names_in_

    Examples
    --------
    >>> from fenchel.datasets import load_house_votes
    >>> from fenchel.estimators import ProbabilisticPCA
    >>> votes = load_house_votes()
    >>> model = ProbabilisticPCA(1, strength=0.1).fit(votes.X)
    >>> z = model.transform(votes.X)[:, 0]
    >>> left, right = sorted(z[votes.party == party].mean() for party in ("democrat", "republican"))
    >>> z.shape, model.converged_, bool(right - left > 1.2)
    ((435,), True, True)
    """

    components_: np.ndarray
    elbo_: float

    def __init__(
        self,
        n_components: int | str = "auto",
        *,
        likelihood: Any = "auto",
        bound: str = "tilted",
        strength: Any = "learned",
        noise: str = "column",
        n_init: int = 1,
        tol: float = 1e-8,
        max_iter: int = 200,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.n_components = n_components
        self.likelihood = likelihood
        self.bound = bound
        self.strength = strength
        self.noise = noise
        self.n_init = n_init
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.verbose = verbose

    # -- fitting -----------------------------------------------------------------------------------
    @stated()
    def fit(self, X: Any, y: ArrayLike | None = None) -> ProbabilisticPCA:
        """Learn the loadings, the offsets and the noise variances from a table.

        Parameters
        ----------
        X : pandas table, array (R, D) or scipy sparse
            NaN, None and NA are missing cells; a zero of a sparse matrix is the value 0.
        y : ignored
        """
        from ..factors.factor_model import FactorModel

        name = type(self).__name__
        self._check_words()
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        table = read(self._checked(X, reset=True), self.likelihood, name, self.bound)
        values = table.values
        table.warn_of_guesses(name)
        self._table = FactorTable(table.columns, table.values[:0], table.frame)
        width = sum(own.n_predictors for own in table.likelihoods)
        chosen = str(self.n_components) == "auto"
        if not (chosen or (isinstance(self.n_components, (int, np.integer)) and 1 <= self.n_components <= width)):
            got = f"n_components = {self.n_components!r} meets {len(table.columns)} feature(s)"
            raise problem(name, got, f'"auto", or a whole number from 1 to {width}, the number of predictors')
        if chosen and self.strength == 0:
            raise problem(name, 'n_components="auto" and strength=0', "a number of factors")
        rng = np.random.default_rng(seed)
        options = {"strength": self.strength, "n_init": int(self.n_init), "rng": rng, "progress": bool(self.verbose)}
        options |= {"tol": float(self.tol), "max_iter": int(self.max_iter)}

        def search() -> FoundFactors:
            if chosen:
                model, result, _ = by_evidence(table, self.noise, min(width, 10), name, **options)
            else:
                model = FactorModel(table.likelihoods, int(self.n_components), self.noise)
                result, _ = fitted(model, table, values, name, **options)
            return FoundFactors(model.n_components, *(getattr(result, each) for each in FoundFactors._fields[1:]))

        result = searched("factors", search, FoundFactors.numbers, FoundFactors.restored)
        self._model = FactorModel(table.likelihoods, result.n_components, self.noise)
        self._model.check(result.parameters)
        self._units = units(name, values, table.columns, self.noise)
        self._inner: Parameters = result.parameters
        self._parameters = self._units.restore(self._model, result.parameters)
        self.components_, self.offset_ = self._parameters.loadings.T, self._parameters.offset
        self.n_components_ = self.components_.shape[0]
        self.noise_variance_, self.strength_ = self._parameters.variance, result.strength
        volume = float((~np.isnan(values)).sum(axis=0) @ np.log(self._units.unit))
        self.elbo_, self.gap_, self.trace_ = result.elbo - volume, result.gap, np.array(result.trace) - volume
        self.n_iter_, self.converged_ = max(1, result.n_iter), result.converged
        self.columns_: tuple[Column, ...] = table.columns
        self.likelihoods_ = {c.name: own for c, own in zip(table.columns, self._parameters.likelihoods)}
        ordered = {name: cast(Cumulative, own) for name, own in self.likelihoods_.items() if own.ordered}
        self.cutpoints_ = {name: own.cutpoints for name, own in ordered.items()}
        self.predictor_names_ = _predictor_names(table.columns)
        if not result.converged:
            warnings.warn(
                f"{name} did not converge: {result.status}. What is kept is the best point reached; raise max_iter "
                f"(now {self.max_iter}), or a strength above {self.strength_:.3g} makes the problem easier.",
                ConvergenceWarning,
                stacklevel=callers_line(),
            )
        return self

    def _check_words(self) -> None:
        name = type(self).__name__
        choice(name, "bound", self.bound, ("tilted", "log-sum", "exact"))
        choice(name, "noise", self.noise, ("column", "shared"))
        if isinstance(self.strength, str):
            choice(name, "strength", self.strength, ("learned",), "Or give a number.")
        elif not (np.ndim(self.strength) == 0 and np.isfinite(self.strength) and self.strength >= 0):
            raise problem(name, f"strength = {self.strength!r}", '"learned" or a number >= 0')
        count(name, "n_init", self.n_init, 1)

    def _checked(self, X: Any, reset: bool) -> Any:
        """scikit-learn's checks: names and number of columns, and for arrays their shape and finiteness."""
        refuse_device(type(self).__name__, "X", X)
        if is_dask(X):
            advice = "Sample its rows, or X.compute(); a fitted model transforms new rows by X.map_partitions."
            raise problem(type(self).__name__, f"X is a {type(X).__name__} of Dask's", "a table in memory", advice)
        least, X = 2 if reset else 1, as_pandas(type(self).__name__, X)
        if is_frame(X):
            validate_data(self, X, reset=reset, skip_check_array=True)
            if X.shape[0] < least:
                raise problem(type(self).__name__, f"X has {X.shape[0]} sample(s)", f"at least {least}")
            return X
        X = X if issparse(X) else plain_array(X)
        options: dict[str, Any] = {"dtype": None, "accept_sparse": "csr", "ensure_all_finite": "allow-nan"}
        return validate_data(self, X, reset=reset, ensure_min_samples=least, **options)

    # -- rows --------------------------------------------------------------------------------------
    def _values(self, X: Any) -> np.ndarray:
        check_is_fitted(self, "components_")
        return self._table.encode(self._checked(X, reset=False), type(self).__name__)

    def _fits(self, values: np.ndarray) -> RowFits:
        return self._model.rows(self._units.apply(values), self._inner, tol=_ROW_TOL)

    def transform(self, X: Any, return_cov: bool = False) -> Any:
        """Posterior means (R, n_components) of the factors of rows, with ``return_cov`` also covariances (R, L, L).

        A row without any cells has those of the prior: zero mean, unit covariance.
        """
        fits = self._fits(self._values(X))
        return (fits.mean, fits.covariance) if return_cov else fits.mean

    def score_samples(self, X: Any) -> np.ndarray:
        """Lower bound (R,), in nats, on the log density of the observed cells of each row."""
        values = self._values(X)
        return self._fits(values).elbo - self._units.log_volume(values)

    def score(self, X: Any, y: ArrayLike | None = None) -> float:
        """Mean of ``score_samples``, in nats."""
        return float(np.mean(self.score_samples(X)))

    # -- cells -------------------------------------------------------------------------------------
    def inverse_transform(self, Z: Any) -> Any:
        """Mean of every cell given factors Z (R, n_components).

        A bernoulli column has the probability of its second level; a multinomial or ordinal column becomes one column
        of probabilities for each level, named ``column=level``. The result is a pandas table if the model was fitted to
        one.
        """
        check_is_fitted(self, "components_")
        Z = np.atleast_2d(numeric(type(self).__name__, "Z", Z))
        if Z.shape[1] != self.components_.shape[0]:
            raise problem(type(self).__name__, f"Z has shape {Z.shape}", f"(R, {self.components_.shape[0]})")
        out = means(self._model, Z, self._parameters)
        if not self._table.frame:
            return out
        from pandas import DataFrame

        names: list[Any] = []
        for column in self.columns_:
            names += column.level_names if lists_levels(column.likelihood) else [column.name]
        return DataFrame(out, columns=names)

    def impute(self, X: Any, return_distribution: bool = False, *, ordered: str = "mode") -> Any:
        """Fill in the missing cells of X from the other cells of their rows.

        Parameters
        ----------
        X : table with the columns of ``fit``
        return_distribution : bool
            Return the predictive distribution of the missing cells instead: a pandas table with ``row`` (its number),
            ``column``, ``level`` (None for numbers), ``mean`` (the probability of a level) and ``sd``.
        ordered : {"mode", "median", "mean"}
            How a cell of ordered levels is filled: the most probable level, the median, or the mean of level numbers.

        Returns
        -------
        table of the type of X
            The mean of a count or a real number, the most probable level of other cells. An integer column of pandas
            that gets a mean becomes Float64.
        """
        values = self._values(X)
        fits = self._fits(values)
        holes = np.isnan(values)
        result = cells(self._model, fits.mean, fits.covariance, self._parameters, holes)  # z does not know of units
        if return_distribution:
            return _distribution(self.columns_, holes, result)
        level, of_means = summaries(type(self).__name__, self.columns_, ordered)
        return self._table.fill(as_pandas(type(self).__name__, X), typical(result, holes, level), of_means)

    def sample(self, n_samples: int = 1, random_state: Any = None) -> Any:
        """Draw rows from the model, as a table of the type that it was fitted to."""
        check_is_fitted(self, "components_")
        rng = np.random.default_rng(check_random_state(random_state).randint(2**31 - 1))
        z = rng.standard_normal((int(n_samples), self.components_.shape[0]))
        return self._table.decode(draw(self._model, z, self._parameters, rng))

    def columns_table(self) -> Any:
        """Table of the columns: how each was read, its number of levels, the reason, and whether it is a guess."""
        check_is_fitted(self, "components_")
        return self._table.summary()

    def loadings_table(self) -> Any:
        """The loadings as a pandas table, with a row for each predictor and a column for each factor."""
        check_is_fitted(self, "components_")
        from pandas import DataFrame

        return DataFrame(self.components_.T, index=self.predictor_names_, columns=self.get_feature_names_out())

    @property
    def _n_features_out(self) -> int:
        return int(self.components_.shape[0])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        return tags


def _predictor_names(columns: tuple[Column, ...]) -> list[str]:
    names = []
    for column in columns:
        if is_softmax(column.likelihood):
            names += column.level_names[: column.likelihood.n_predictors]
        else:
            names.append(str(column.name))
    return names


def _distribution(columns: tuple[Column, ...], holes: np.ndarray, cells: list[Any]) -> Any:
    """The predictive distributions of missing cells as a tidy table, by row and then by column."""
    from pandas import DataFrame, concat

    parts = []
    for d, (column, cell) in enumerate(zip(columns, cells)):
        rows = np.flatnonzero(holes[:, d])
        if not column.levels:
            (mean, sd), K, levels = cell, 1, [None]
        else:
            K, levels = len(column.levels), list(column.levels)
            p = cell.ravel()
            mean, sd = p, np.sqrt(p * (1.0 - p))
        part = DataFrame({"row": np.repeat(rows, K), "column": [column.name] * (K * rows.size)})
        names = np.empty(K * rows.size, dtype=object)
        names[:] = levels * rows.size
        parts.append(part.assign(level=names, mean=mean, sd=sd, order=d))
    out = concat(parts, ignore_index=True).sort_values(["row", "order"], kind="stable", ignore_index=True)
    return out.drop(columns="order")

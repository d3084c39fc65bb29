"""Effects of covariates in a fitted model: contrasts of rows, marginal means, comparisons and slopes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..checks import choice, problem
from ..distributed import is_dask
from ..inputs.frames import Table
from . import averages, marginal_means
from .capabilities import answers, check
from .fit_tables import FitTables
from .marginal_means import Question
from .reference_grid import listed

if TYPE_CHECKING:
    import pandas as pd


class FitEffects(FitTables):
    """The methods of a fitted model about effects of covariates."""

    def contrast(
        self, first: Table, second: Table, kind: str = "link", *, interval: float = 0.95, without: Any = ()
    ) -> pd.DataFrame:
        """Posterior of the prediction for ``first`` minus that for ``second``, row by row.

        Parameters
        ----------
        first, second : data frames or dicts of columns
            One row is compared with every row of the other table. Columns that neither names are held at the mean of a
            number and the most frequent level of a factor. Their values cancel in eta if the terms are additive; name
            them if there are interactions or slopes of groups, or for ``kind="mean"``.
        kind : {"link", "mean"}, default "link"
            Compare eta, or E[y] at exposure 1 and one trial.
        interval : float, default 0.95
            Probability of the interval.
        without : "groups", or name or list of names of terms
            Terms that are 0 in both, as in ``predict``.

        Returns
        -------
        DataFrame
            With mean, sd, the interval and the posterior probability that the difference is above 0.

        Examples
        --------
        >>> import fenchel, pandas as pd
        >>> data = pd.DataFrame({"x": [0.0, 1.0, 2.0, 3.0], "y": [1.1, 2.9, 5.1, 6.9]})
        >>> fit = fenchel.fit("y ~ x", data, "gaussian", accuracy="fast")
        >>> fit.contrast({"x": [3.0]}, {"x": [1.0]})["mean"].round(1).tolist()
        [3.9]
        """
        check(self, "contrast")
        choice("contrast", "kind", kind, ("link", "mean"))
        return averages.contrast(self, first, second, kind, interval, without)

    def means(
        self,
        names: str | Sequence[str] = (),
        *,
        by: Any = None,
        at: Mapping[str, Any] | None = None,
        data: Table = None,
        weights: str = "equal",
        scale: str | None = None,
        groups: str = "centre",
        interval: float = 0.95,
        simultaneous: bool = False,
    ) -> pd.DataFrame:
        """Marginal means: predictions at values of some columns, averaged over the other columns.

        Parameters
        ----------
        names : str or list of str
            Columns whose levels or values get a row each. A number with many values has its mean and one standard
            deviation below and above; ``at`` chooses other values.
        by : str or list of str, optional
            Further columns that get rows; with ``weights="population"`` subsets of the data.
        at : dict of column to value or list, optional
            The values of columns in ``names`` and ``by``, or values at which other columns are held (averaged over a
            list).
        weights : {"equal", "cells", "population"}, default "equal"
            "equal": all combinations of levels weigh the same, numbers are at their mean unless they have two values
            (the reference grid of emmeans). "cells": the same with combinations weighted by their frequency in the
            data. "population": the rows of the data with ``names`` changed (``avg_predictions`` of marginaleffects). A
            row of the data counts as often as ``weights`` of the model says.
        data : data frame or dict of columns, optional
            Other rows for ``weights="population"``.
        scale : {"mean", "link", "outcome"}, optional
            E[y] at exposure 1 and one trial (default), eta (default for "cox", which has no mean), or y itself.
        groups : {"centre", "population", "own"}, default "centre"
            Effects of groups are 0 (lme4's ``re.form=NA``), averaged over the population of groups, or, with
            ``weights="population"``, those of each row.
        interval : float, default 0.95
            Probability of the intervals.
        simultaneous : bool, default False
            Whether all intervals cover jointly with that probability.

        Returns
        -------
        DataFrame
            The columns ``names`` and ``by``, estimate, std_error, conf_low, conf_high and mc_error, the Monte Carlo
            error of the estimate (0 for averages of eta, which are exact).

        Examples
        --------
        >>> import fenchel, pandas as pd
        >>> data = pd.DataFrame({"y": [1.0, 2.0, 3.0, 5.0, 4.0, 6.0], "f": list("aabbcc")})
        >>> fenchel.fit("y ~ f", data, "gaussian", accuracy="fast").means("f", scale="link")[["f", "estimate"]].round(1)
           f  estimate
        0  a       1.5
        1  b       4.0
        2  c       5.0
        """
        question = self._question("means", by, at, data, weights, scale, groups, interval, simultaneous)
        return marginal_means.means(self, listed(names), question)

    def comparisons(
        self,
        name: str,
        *,
        by: Any = None,
        at: Mapping[str, Any] | None = None,
        data: Table = None,
        kind: str = "difference",
        contrast: Any = "pairwise",
        step: float | None = None,
        weights: str = "equal",
        scale: str | None = None,
        groups: str = "centre",
        interval: float = 0.95,
        simultaneous: bool = False,
    ) -> pd.DataFrame:
        """Compare predictions between values of a column; parameters not listed are those of ``means``.

        Parameters
        ----------
        name : str
            A factor, whose levels are compared, or a number, for which x + ``step`` is compared with x, or the values
            that ``at`` lists.
        step : float, default 1
        kind : {"difference", "ratio", "odds"}, default "difference"
            "odds": ratio of the odds of averaged probabilities; on the link scale exp of the difference.
        contrast : {"pairwise", "reference", "consecutive"} or dict of label to weight, default "pairwise"
            All pairs, each value with the first, each with the previous one; or a weighted sum of the values.

        Returns
        -------
        DataFrame
            term, contrast, the columns of ``by``, those of ``means``, and p_above_0 (p_above_1 for ratios). Estimates
            of ratios are medians with a first-order standard error.

        Examples
        --------
        >>> import fenchel, pandas as pd
        >>> data = pd.DataFrame({"y": [1.0, 2.0, 3.0, 5.0, 4.0, 6.0], "f": list("aabbcc")})
        >>> fit = fenchel.fit("y ~ f", data, "gaussian", accuracy="fast")
        >>> fit.comparisons("f", scale="link")[["contrast", "estimate"]].round(1)
          contrast  estimate
        0    b - a       2.5
        1    c - a       3.5
        2    c - b       1.0
        """
        question = self._question("comparisons", by, at, data, weights, scale, groups, interval, simultaneous)
        return marginal_means.comparisons(self, name, question, kind, contrast, step)

    def slopes(
        self,
        name: str,
        *,
        by: Any = None,
        at: Mapping[str, Any] | None = None,
        data: Table = None,
        weights: str = "population",
        scale: str | None = None,
        groups: str = "centre",
        interval: float = 0.95,
        simultaneous: bool = False,
    ) -> pd.DataFrame:
        """Average slope of a prediction along a column of numbers; parameters as in ``means``.

        ``at={"x": [1, 2]}`` takes the slope along x at these values. Default: at the values of the rows, or at the mean
        of x with other ``weights``. With ``(x|g)`` it is the slope of the population, or with ``groups="own"`` the
        average over the rows of the slopes of their groups.

        Examples
        --------
        >>> import fenchel, pandas as pd
        >>> data = pd.DataFrame({"x": [0.0, 1.0, 2.0, 3.0], "y": [1.1, 2.9, 5.1, 6.9]})
        >>> fit = fenchel.fit("y ~ x", data, "gaussian", accuracy="fast")
        >>> fit.slopes("x")[["term", "estimate"]].round(1)
          term  estimate
        0    x       2.0
        """
        question = self._question("slopes", by, at, data, weights, scale, groups, interval, simultaneous)
        return marginal_means.slopes(self, name, question)

    def plot_effect(
        self,
        name: str,
        *,
        by: Any = None,
        at: Mapping[str, Any] | None = None,
        weights: str = "equal",
        scale: str | None = None,
        groups: str = "centre",
        interval: float = 0.95,
        simultaneous: bool = False,
        data: bool = True,
        ax: Any = None,
    ) -> Any:
        """Plot ``means`` along a column with bands, and the rows of the data.

        Parameters
        ----------
        name : str
            A number is drawn as a curve over its range, a factor as points; ``at`` chooses other values.
        by : str or list of str, optional
            One curve for each value, up to seven.
        at, weights, scale, groups, interval, simultaneous
            As in ``means``. The title says where other columns are held, or which are averaged over.
        data : bool, default True
            Whether the rows are drawn, as y for one trial at exposure 1; not on the link scale, nor for levels and
            durations.
        ax : matplotlib Axes, optional

        Returns
        -------
        matplotlib Axes

        Examples
        --------
        >>> import fenchel, numpy as np, pandas as pd
        >>> x = np.linspace(0.0, 3.0, 40)
        >>> fit = fenchel.fit("y ~ s(x)", pd.DataFrame({"x": x, "y": np.sin(x)}), "gaussian", accuracy="fast")
        >>> fit.plot_effect("x").get_xlabel()
        'x'
        """
        from .effect_pictures import plot_effect

        check(self, "plot")
        question = self._question("means", by, at, None, weights, scale, groups, interval, simultaneous)
        return plot_effect(self, name, replace(question, where="plot_effect"), data, ax)

    def _question(
        self, where: str, by: Any, at: Any, data: Table, weights: str, scale: str | None, *rest: Any
    ) -> Question:
        check(self, where)
        self._check_table(where, data)
        if scale != "link" and not answers(self, "predict"):
            if scale is not None:
                check(self, "predict")
            scale = "link"
        return Question(where, [] if by is None else listed(by), dict(at or {}), data, weights, scale or "mean", *rest)

    def _check_table(self, question: str, new: Any) -> None:
        """Refuse Dask tables, and None if the rows of the fit are not in memory."""
        if is_dask(new):
            raise problem(question, "a Dask dataframe", "a table in memory: new.compute()")
        if new is None and not self.engine.keeps_rows:
            got = "without a table it needs the rows of the fit, which are not in memory"
            raise problem(question, got, f"{question} of a table")

"""The table of methods that some kinds of fits lack; it makes the errors and the table of the documentation.

A fit has every method except those that are listed here for its engine or its kind of model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..checks import problem

if TYPE_CHECKING:
    from .fit_tables import FitTables

QUESTIONS = (
    "coefficients",
    "effects",
    "hyperparameters",
    "summary",
    "check",
    "predict",
    "sample",
    "covariance",
    "corrected",
    "evidence_bounds",
    "proved",
    "exceedance",
    "simulate",
    "contrast",
    "means",
    "comparisons",
    "slopes",
    "observed",
    "survival",
    "loo",
    "leave_group_out",
    "k_fold",
    "waic",
    "residuals",
    "residual_tests",
    "influence",
    "r2",
    "variance_shares",
    "log_likelihood",
    "sensitivity",
    "plot",
    "plot_residuals",
    "plot_check",
    "plot_joint",
    "plot_map",
    "plot_survival",
    "report",
    "to_arviz",
)


@dataclass(frozen=True)
class Limit:
    """The methods that a kind of fit lacks.

    Attributes
    ----------
    title : str
        The title of its column in the documentation.
    why : str
    instead : mapping
        The alternative for each method.
    """

    title: str
    why: str
    instead: Mapping[str, str]


_OF_RESIDUALS = ("residuals", "residual_tests", "influence", "r2", "variance_shares", "sensitivity", "plot_residuals")
_ONE_PART = {
    name: f"fit.count.{name} of the counts above 0, or fit.zero.{name} of the zeros"
    for name in (
        *(
            "covariance",
            "contrast",
            "means",
            "comparisons",
            "slopes",
            "exceedance",
            "proved",
            "leave_group_out",
            "k_fold",
        ),
        *_OF_RESIDUALS,
        *("plot", "plot_check", "plot_joint", "plot_map", "to_arviz"),
    )
}
_NO_DURATIONS = dict.fromkeys(
    ("survival", "plot_survival"), 'durations with family="weibull", "exponential" or "cox"; here predict() or sample()'
)
_DRAWS = "sample(new, size), joint draws of the probabilities of the classes"
_TABLES = "coefficients and effects, tables with a row a class"
_HELD_OUT = "predict(table, ...) of rows that were held out"
_HAZARD = "fit.survival(new, times) for P(T > t), or fit.contrast(first, second) for a log hazard ratio"

LIMITS = {
    "hurdle": Limit(
        "hurdle with `zero=`", "a hurdle with a formula for its zeros is two models", _ONE_PART | _NO_DURATIONS
    ),
    "multinomial": Limit(
        "multinomial",
        "this is asked of one predictor, and each class of a multinomial model has its own",
        {
            "covariance": "coefficients, which has the sd of each",
            "simulate": _DRAWS,
            "exceedance": f"{_DRAWS}: the share of them that is above",
            "contrast": f"coefficients for the log odds against the reference, or {_DRAWS}",
            **dict.fromkeys(
                ("means", "comparisons", "slopes"), f"predict at rows that differ in the column, or {_DRAWS}"
            ),
            "waic": "loo()",
            **dict.fromkeys(_OF_RESIDUALS, "loo(), log densities of rows from the others"),
            "log_likelihood": "elbo, a lower bound of the evidence, or loo()",
            "to_arviz": _DRAWS,
            "plot": _TABLES,
            "plot_map": _TABLES,
            "plot_check": "predict(), whose means are shares of the classes, beside those of the data",
            "plot_joint": "hyperparameters",
            "report": "summary(), a page of text",
            **_NO_DURATIONS,
        },
    ),
    "cox": Limit(
        "Cox",
        "a Cox model has a hazard over time, and no one mean of a row",
        {
            **{"predict": _HAZARD, "sample": _HAZARD, "exceedance": _HAZARD, "simulate": _HAZARD},
            **dict.fromkeys(_OF_RESIDUALS, 'plot_check("groups"), survival beside Kaplan and Meier\'s'),
            "log_likelihood": "elbo, a lower bound of the evidence, or loo()",
        },
    ),
    "iterative": Limit(
        "iterative engine",
        "the iterative engine has no factor to answer it",
        {
            "corrected": 'engine="direct"',
            "evidence_bounds": 'engine="direct", or elbo, a lower bound',
            "proved": 'engine="direct"',
            "loo": 'engine="direct", or rows held out and predicted',
            "waic": 'engine="direct"',
            "leave_group_out": 'engine="direct", or groups held out and predicted',
            "k_fold": 'engine="direct", or folds held out and predicted',
            **dict.fromkeys((*_OF_RESIDUALS, "log_likelihood"), 'engine="direct"'),
            "to_arviz": "sample, which draws eta and y",
        },
    ),
    "partitioned": Limit(
        "rows out of memory (Dask)",
        "this answer needs rows of the fit, which are out of memory",
        dict.fromkeys(("evidence_bounds", "proved"), "elbo, a lower bound; a table in memory has both")
        | dict.fromkeys(
            (
                *("corrected", "loo", "leave_group_out", "k_fold", "waic", "simulate"),
                *("contrast", "means", "comparisons", "slopes"),
                *_OF_RESIDUALS,
                *("log_likelihood", "observed", "plot_check", "report", "to_arviz"),
            ),
            _HELD_OUT,
        ),
    ),
}


def answers(fit: FitTables, question: str) -> bool:
    """Whether a fit has a method."""
    return not any(question in LIMITS[name].instead for name in fit.limits)


def check(fit: FitTables, question: str) -> None:
    """Raise an error that names the alternative if the fit lacks a method."""
    for name in fit.limits:
        limit = LIMITS[name]
        if question in limit.instead:
            raise problem(question, limit.why, limit.instead[question])


def table() -> str:
    """The table of the documentation, in markdown: a row for each method, a column for each kind of fit."""
    lines = [["", *(limit.title for limit in LIMITS.values())], ["---"] * (len(LIMITS) + 1)]
    for question in QUESTIONS:
        answered = ["-" if question in limit.instead else "yes" for limit in LIMITS.values()]
        lines.append([f"`{question}`", *answered])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)

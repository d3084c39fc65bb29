"""Tables as users bring them: frames, arrays and records; columns by name or number; targets with holes."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import check_consistent_length
from sklearn.utils.validation import column_or_1d

from ..checks import first, numeric, problem
from ..likelihoods.base import Likelihood


def as_frame(where: str, X: Any, fitting: bool) -> Any:
    """X itself, a structured array as a frame; refuses masks, and columns of one name at fit."""
    if np.ma.is_masked(X):
        got = f"X{first(np.ma.getmaskarray(X))} is masked"
        raise problem(where, got, "values", "Only y may be unobserved; drop the row.")
    if getattr(getattr(X, "dtype", None), "names", None):  # a structured array
        import pandas as pd

        return pd.DataFrame.from_records(X)
    if fitting and hasattr(X, "columns"):
        for name in names_of(X):
            column_of(where, X, name)
    return X


def column_of(where: str, X: Any, name: Any) -> Any:
    """One column, or the sentence that says which there are."""
    known = names_of(X)
    if known.count(name) > 1:
        raise problem(where, f"X has the column {name!r} twice", "each name once")
    if name not in known:
        names = ", ".join(repr(k) for k in known[:8]) + (", ..." if len(known) > 8 else "")
        advice = "" if hasattr(X, "columns") else "The columns of an array are numbers; a pandas frame has names."
        raise problem(where, f"X has no column {name!r}: it has {names}", "every column that the model uses", advice)
    return X[name] if hasattr(X, "columns") else X[:, name]


def names_of(X: Any) -> list[Any]:
    """Of the columns: a frame's own, or the numbers 0, 1, ... of an array's."""
    return list(X.columns) if hasattr(X, "columns") else list(range(X.shape[1]))


def is_geometry(X: Any, name: Any) -> bool:
    """Whether a column holds the outlines of a geopandas frame, which are no covariate."""
    return str(getattr(X, "dtypes", {}).get(name, "")) == "geometry" if hasattr(X, "iloc") else False


def weight_seen(likelihood: Likelihood, y: np.ndarray, weights: Any) -> np.ndarray:
    """The weight of each row (N,): 0 where it is unobserved, by its y, its exposure or its trials."""
    out = np.where(np.isnan(y), 0.0, 1.0 if weights is None else weights)
    for key in ("exposure", "trials"):
        given = getattr(likelihood, key, None)
        out = out if given is None else np.where(np.asarray(given) > 0.0, out, 0.0)
    return out


def target_of(where: str, X: Any, y: Any) -> np.ndarray:
    """y (N,), NaN where unobserved: missing or masked."""
    if y is None:
        raise ValueError(f"{where}: requires y to be passed, but the target y is None.")
    if np.ma.isMaskedArray(y):
        y = np.ma.filled(y.astype(np.float64), np.nan)
    if hasattr(y, "iloc") and y.ndim == 1 and y.dtype.kind not in "OSUMm":
        y = y.to_numpy(dtype=np.float64, na_value=np.nan)  # pandas' nullable columns too
    out = numeric(where, "y", column_or_1d(y, warn=True))
    check_consistent_length(X, out)
    if np.isnan(out).all():
        raise problem(where, "every y is NaN", "at least one observed row")
    return out

"""What the command line reads: tables, outlines, neighbours, matrices, priors as text, and levels."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..checks import optional, problem
from ..hyperparameters.priors import PC, Normal
from ..inputs.levels import listed
from ..outlines import labels_of, named_by
from .expressions import LONGEST

if TYPE_CHECKING:
    import pandas as pd


WHERE = "fenchel"
_SHAPES = (".shp", ".gpkg", ".fgb", ".zip", ".gml", ".kml")  # outlines that geopandas reads

_LINES = 50  # that say how numbers are written

_PRIOR = re.compile(r"(.+)\s*=\s*(normal|pc|flat)\s*(?:\(([^()]*)\))?\s*", re.IGNORECASE | re.DOTALL)

_PRIORS = '"NAME=normal(mean, sd)", "NAME=pc(sd, alpha)", "NAME=pc(range=, alpha=)" or "NAME=flat"'

_OF = re.compile(r"\s+of\s+(?=(?:[^`]*`[^`]*`)*[^`]*$)")  # not between backticks

_COLUMN = re.compile(r"^`([^`]+)`$")  # a column whose name is no word


# -- tables -------------------------------------------------------------------------------------------------
def read_table(path: Path, texts: Iterable[str] = ()) -> pd.DataFrame:
    """A csv file, plain or compressed, or parquet; ``-`` is standard input.

    Columns of ``texts`` are words as they stand. The header says what stands between columns: comma, semicolon, tab or
    bar. Between semicolons 1,5 is a number.
    """
    import pandas as pd

    if path.suffix in (".parquet", ".pq"):
        optional(WHERE, "pyarrow")
        return pd.read_parquet(path)
    try:
        source: Any = io.StringIO(sys.stdin.read()) if str(path) == "-" else path
        lines = _first_lines(source)
        if not lines:
            raise problem(WHERE, f"{path} is empty", "a header and rows")
        between = max(",;\t|", key=lambda mark: sum(len(row) - 1 for row in csv.reader(lines[:1], delimiter=mark)))
        comma = between == ";" and any(re.search(r"(^|;)\s*-?\d+,\d+\s*(;|$)", line) for line in lines[1:])
        names = next(csv.reader(lines[:1], delimiter=between))
        words = {name: str for name in texts if name in names}
        return pd.read_csv(source, sep=between, decimal="," if comma else ".", dtype=words, low_memory=False)
    except (pd.errors.ParserError, UnicodeDecodeError) as error:
        got = f"{path} cannot be read ({str(error).strip().splitlines()[0]})"
        raise problem(WHERE, got, "a csv file in UTF-8, one row a line") from None


def _first_lines(source: Any) -> list[str]:
    import pandas.io.common as common

    if isinstance(source, io.StringIO):
        lines = source.getvalue().splitlines()[:_LINES]
    else:
        with common.get_handle(source, "r", encoding="utf-8", compression="infer") as opened:
            lines = [line.rstrip("\r\n") for _, line in zip(range(_LINES), opened.handle, strict=False)]
    return [line for line in lines if line.strip()]


# -- regions and matrices -----------------------------------------------------------------------------------
def read_outlines(path: Path, key: str | None, columns: list[str]) -> Any:
    """Outlines whose regions have names: the property ``key``, the ids, or a property called like their column."""
    if path.suffix in _SHAPES:
        frame = optional(WHERE, "geopandas").read_file(path)
        name = key or next((column for column in columns if column in frame.columns), None)
        if name is None or name not in frame.columns:
            got = f"{path} has no column {name!r}" if name else f"the regions of {path} have no names"
            raise problem(WHERE, got, f"--id with one of {', '.join(map(str, frame.columns))}")
        return frame.set_index(name)
    try:
        text = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise problem(WHERE, f"{path} is no JSON ({error})", "a FeatureCollection of GeoJSON") from None
    features = text.get("features") if isinstance(text, dict) else None
    if not features or not all(isinstance(feature, dict) for feature in features):
        raise problem(WHERE, f"{path} has no features", "a FeatureCollection of GeoJSON")
    known = [(feature.get("properties") or {}) for feature in features]
    lacks = next((i for i, properties in enumerate(known) if properties.get(key) is None), None)
    if key is not None and lacks is not None:
        got = f"feature {lacks} of {path} has no property {key!r}"
        raise problem(WHERE, got, f"one of {', '.join(map(str, known[lacks]))}")
    named = [named_by(text, key), *(named_by(text, column) for column in columns if key is None)]
    out = next((each for each in named if labels_of(each) is not None), None)
    if out is None:
        lacks = next(i for i, feature in enumerate(features) if feature.get("id") is None)
        raise problem(WHERE, f"feature {lacks} of {path} has no id", "ids", "--id names a property instead.")
    return out


def region_texts(outlines: Any, columns: list[str]) -> list[str]:
    """The columns of regions that are words, because the outlines' names are: 01001 keeps its zero."""
    labels = labels_of(outlines) or []
    return columns if labels and all(isinstance(label, str) for label in labels) else []


def read_pairs(path: Path) -> dict[str, list[str]]:
    """Neighbours {region: [regions]} from a table whose first two columns are pairs of them."""
    frame = read_table(path)
    if frame.shape[1] < 2:
        raise problem(WHERE, f"{path} has {frame.shape[1]} column", "two: a region and its neighbour")
    frame = read_table(path, [str(name) for name in frame.columns[:2]])
    first, second = (frame.iloc[:, j] for j in (0, 1))
    if first.isna().any():
        raise problem(
            WHERE, f"row {int(first.isna().argmax())} of {path} names no region", "a region and its neighbour"
        )
    out: dict[str, dict[str, None]] = {region: {} for region in first}
    for one, other in zip(first, second, strict=True):
        if isinstance(other, str) and other != one:  # a region alone has an empty second column
            out[one][other] = None
            out.setdefault(other, {})[one] = None
    return {region: list(near) for region, near in out.items()}


def read_matrix(path: Path) -> pd.DataFrame:
    """A square table of numbers whose first column are the names of its rows, and whose header those of its columns."""
    frame = read_table(path)
    frame = frame.set_index(frame.columns[0])
    if frame.shape[0] != frame.shape[1]:
        got = f"{path} has {frame.shape[0]} rows and {frame.shape[1]} columns beside their names"
        raise problem(WHERE, got, "as many of both")
    if [str(name) for name in frame.index] != [str(name) for name in frame.columns]:
        raise problem(WHERE, f"the rows and columns of {path} have different names", "the same in the same order")
    return frame.set_axis(frame.index, axis=1)


# -- options as text ----------------------------------------------------------------------------------------
def pair(option: str, text: str) -> tuple[str, str]:
    """NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not (equals and name.strip() and value.strip()):
        raise problem(WHERE, f"{option} {text!r}", f"{option} NAME=VALUE")
    return name.strip(), value.strip()


def read_priors(texts: Iterable[str]) -> dict[str, Any]:
    """What ``priors=`` of a model takes, from texts NAME=PRIOR; "phi of bym2(r)" is {"bym2(r)": {"phi": ...}}."""
    out: dict[str, Any] = {}
    for text in texts:
        names, prior = read_prior(text)
        inner = out
        for name in names[:-1]:
            inner = inner.setdefault(name, {})
            if not isinstance(inner, dict):
                raise problem(WHERE, f"--prior {text!r}: {name!r} has a prior already", "one of the two")
        if names[-1] in inner:
            raise problem(WHERE, f"--prior {text!r}: {names[-1]!r} has a prior already", "one prior of each")
        inner[names[-1]] = prior
    return out


def read_prior(text: str) -> tuple[list[str], Any]:
    """NAME=normal(mean, sd), NAME=pc(...) with the arguments of ``PC``, or NAME=flat; nothing else is read.

    The names stand from the outermost on: "phi of bym2(r)" is ["bym2(r)", "phi"].

    Examples
    --------
    >>> from fenchel.models.command_files import read_prior
    >>> read_prior("phi of bym2(r)=pc(phi=0.5, alpha=2/3)")[0]
    ['bym2(r)', 'phi']
    """
    result = _PRIOR.fullmatch(text.strip()) if len(text) <= LONGEST else None
    if result is None:
        raise problem(WHERE, f"--prior {text[:200]!r}", _PRIORS)
    names = [_COLUMN.sub(r"\1", name.strip()) for name in _OF.split(result[1])][::-1]
    if not all(names):
        raise problem(WHERE, f"--prior {text!r} names nothing", _PRIORS)
    word, inside = result[2].lower(), result[3] or ""
    plain: list[float] = []
    named: dict[str, float] = {}
    for part in inside.split(",") if inside.strip() else []:
        name, equals, value = part.rpartition("=")
        if name.strip() in named:
            raise problem(WHERE, f"--prior {text!r}: {name.strip()} stands twice", _PRIORS)
        if equals:
            named[name.strip()] = _number(text, value)
        else:
            plain.append(_number(text, value))
    n = len(plain) + len(set(named) - {"alpha", "base"})
    least: dict[str, int] = {"normal": 2, "pc": 1, "flat": 0}
    made: dict[str, Callable[..., Any]] = {"normal": Normal, "pc": PC, "flat": lambda: None}
    if n < least[word]:
        raise problem(WHERE, f"--prior {text!r} has too few numbers", _PRIORS)
    try:
        return names, made[word](*plain, **named)
    except TypeError:  # arguments that it does not have
        raise problem(WHERE, f"--prior {text!r} has other arguments", _PRIORS) from None


def _number(text: str, value: str) -> float:
    """A finite number, or a ratio of two whole ones: 2/3."""
    try:
        return float(Fraction(value))
    except (ValueError, ZeroDivisionError, OverflowError):
        got = f"--prior {text!r}: {value.strip()!r} is no number"
        raise problem(WHERE, got, "such as 0.01 or 2/3") from None


# -- levels -------------------------------------------------------------------------------------------------
def split_levels(frame: pd.DataFrame, name: str, text: str) -> list[Any]:
    """Levels between commas, numbers where the column holds numbers."""
    out = [level.strip() for level in next(csv.reader([text], skipinitialspace=True))]
    if name in frame.columns and frame[name].dtype.kind in "iuf":
        try:
            numbers = [float(level) for level in out]
        except ValueError:
            raise problem(WHERE, f"--levels {name}={text}: {name!r} holds numbers", "numbers between commas") from None
        return [int(number) if number.is_integer() else number for number in numbers]
    return out


def with_levels(frame: pd.DataFrame, levels: Mapping[str, Sequence[Any]], response: str) -> pd.DataFrame:
    """The table, its columns of words, and y, with their levels in that order; other columns stay as they are."""
    import pandas as pd

    made = {}
    for name, each in levels.items():
        if name not in frame.columns or (name != response and frame[name].dtype.kind in "iuf"):
            continue
        column = frame[name].astype(str).where(frame[name].notna()) if frame[name].dtype.kind == "b" else frame[name]
        other = (column.notna() & ~column.isin(each)).to_numpy()
        if other.any():
            got = f"--levels {name}: row {int(other.argmax())} has {column.iloc[int(other.argmax())]!r}"
            raise problem(WHERE, got, f"one of {', '.join(map(repr, each))}")
        made[name] = pd.Categorical(column, categories=listed(WHERE, name, each), ordered=True)
    return frame.assign(**made)


def with_reference(frame: pd.DataFrame, name: str, label: str) -> pd.DataFrame:
    """The table, with one label of a column before its others."""
    import pandas as pd

    if name not in frame.columns:
        raise problem(WHERE, f"--reference {name}={label}: there is no column {name!r}", "a column of the table")
    if frame[name].dtype.kind in "iuf":
        advice = f"--text {name} makes words of them."
        raise problem(WHERE, f"--reference {name}={label}: {name!r} holds numbers", "a column of words", advice)
    column = frame[name].astype(str).where(frame[name].notna())
    labels = sorted(column.dropna().unique())
    if label not in labels:
        raise problem(WHERE, f"--reference {name}={label}", f"one of {', '.join(map(repr, labels))}")
    order = [label, *(other for other in labels if other != label)]
    return frame.assign(**{name: pd.Categorical(column, categories=order)})

"""A table whose rows live in partitions: each pass takes the loadings to the rows and brings sums of their size back.

    W, b, the likelihoods  ->  every row of a partition solved by itself, as in memory  ->  sums of elbo, gap, gradients

Rows are fitted from nothing at every pass, so that no partition holds a state and the evidence is a function of the
parameters alone. The certificate of the table is the sum of its rows' gaps.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ..distributed import Block, Checkpoint, Partitions, Sums
from .columns import Table, codes_of
from .data import Data, InMemory, Summary
from .moments import Moments
from .scaling import Units, is_real, units_from
from .surveying import Survey

if TYPE_CHECKING:
    from .model import FactorModel, Parameters, TableFit
    from .starts import Score


@dataclass(frozen=True)
class Reader:
    """Rows of a partition as numbers: encoded as the columns were read, in units."""

    where: str
    table: Table
    units: Units | None = None

    def values(self, block: Block) -> np.ndarray:
        """(R, D), NaN for missing cells."""
        out = self.table.encode(block["X"], f"{self.where}: partition {block.number}")
        return out if self.units is None else self.units.apply(out)


@dataclass(frozen=True)
class InPartitions(Data):
    """A table in partitions, surveyed."""

    rows: Partitions
    reader: Reader
    found: Survey
    record: Record | None = None

    @property
    def n_rows(self) -> int:  # type: ignore[override]
        return self.found.n_rows

    @property
    def complete(self) -> bool:  # type: ignore[override]
        return not any(column.holes for column in self.found.columns)

    @property
    def seen(self) -> np.ndarray:
        """How many cells of each column are not missing (D,)."""
        return np.array([column.n for column in self.found.columns])

    def own_units(self, noise: str) -> Units:
        """The units of the Gaussian columns."""
        columns = self.reader.table.columns
        real = [one for one, own in zip(self.found.columns, is_real(columns), strict=True) if own]
        said = np.array([(one.mean, one.sd, max(abs(one.low), abs(one.high))) for one in real]).reshape(-1, 3)
        return units_from(self.rows.where, columns, noise, *said.T)

    def in_units(self, units: Units) -> Self:
        """The same table in these units."""
        return replace(self, reader=replace(self.reader, units=units))

    # -- what learning asks ------------------------------------------------------------------------
    def summaries(self, model: FactorModel) -> list[Summary]:
        out, units = [], self.reader.units or Units(np.zeros(model.n_columns), np.ones(model.n_columns))
        parts = zip(self.reader.table.columns, self.found.columns, units.middle, units.unit, strict=True)
        for column, one, middle, unit in parts:
            counts = np.zeros(column.n_levels)
            if column.levels:
                codes = codes_of(one.column(self.rows.where), column.levels, self.rows.where)
                np.add.at(counts, codes.astype(np.intp), one.counts)
            mean, sd = (one.mean - middle) / unit, one.sd / unit
            out.append(Summary(one.n, float(mean), float(sd), float(mean * one.n), counts, np.zeros(0)))
        return out

    def products(self, scores: list[Score]) -> np.ndarray:
        return np.asarray(self.rows.reduce(_products, self.reader, scores))

    def moments(self) -> Moments:
        sums = self.rows.reduce(_moments, self.reader)
        mean = sums["total"] / sums["n"]
        return Moments(sums["n"], mean, sums["square"] / sums["n"] - np.outer(mean, mean))

    def take(self, rows: np.ndarray) -> np.ndarray:
        out = np.empty((rows.size, len(self.found.columns)))
        for which, values in self.rows.reduce(_some, self.reader, self.found.places(rows)):
            out[which] = values
        return out

    def evidence(self, model: FactorModel, p: Parameters, warm: list[Any] | None, tol: float) -> TableFit:
        known = None if self.record is None else self.record.known(p, tol)
        if known is not None:
            return known
        fit: TableFit = self.rows.reduce(_evidence, self.reader, model, p, tol)
        if self.record is not None:
            self.record.add(fit)
        return fit


# -- of one partition ---------------------------------------------------------------------------------------
def _products(block: Block, reader: Reader, scores: list[Score]) -> np.ndarray:
    return InMemory(reader.values(block)).products(scores)


def _moments(block: Block, reader: Reader) -> Sums:
    values = reader.values(block)
    return Sums(n=block.n, total=values.sum(axis=0), square=values.T @ values)


def _some(block: Block, reader: Reader, wanted: dict[int, Any]) -> list[tuple[np.ndarray, np.ndarray]]:
    if block.number not in wanted:
        return []
    which, where = wanted[block.number]
    return [(which, reader.values(block)[where])]


def _evidence(block: Block, reader: Reader, model: FactorModel, p: Parameters, tol: float) -> TableFit:
    return replace(InMemory(reader.values(block)).evidence(model, p, None, tol), start=[])  # rows stay where they are


# -- checkpoints --------------------------------------------------------------------------------------------
class Record:
    """The evidence at every point of a search, in a file: a search that begins again asks the same and is answered.

    Learning is a function of what the rows answer, so that a fit killed at any moment goes on to the same result.

    Parameters
    ----------
    file : Checkpoint
    settings : dict
        What a fit of the same name has asked for.
    measured : array
        What the first pass found.
    seed : int
        Of the random numbers that the fit draws; that of the file where it has begun already.
    """

    def __init__(self, file: Checkpoint, settings: dict[str, Any], measured: np.ndarray, seed: int) -> None:
        self.file, self.settings, self.measured, self.seed = file, settings, measured, seed
        self.keys: list[str] = []
        self.fits: list[np.ndarray] = []
        self.asked, self.shapes = "", []
        self.at = 0
        told = file.read()
        if told is not None:
            content, arrays = told
            if len(arrays) != 2:
                raise file.of_another("it has no points")
            file.check(content, settings, measured, arrays[0])
            self.seed, self.keys, self.shapes = int(content["seed"]), list(content["keys"]), content["shapes"]
            self.fits = list(arrays[1])

    def known(self, p: Parameters, tol: float) -> TableFit | None:
        """The answer to the next question, where the file has it."""
        own = [np.asarray(one.theta) for one in p.likelihoods]
        text = b"".join(np.ascontiguousarray(x).tobytes() for x in (p.loadings, p.offset, *own, np.float64(tol)))
        self.asked = hashlib.sha256(text).hexdigest()
        if self.at >= len(self.keys):
            return None
        if self.keys[self.at] != self.asked:  # another machine's rounding: what comes after is of no use
            del self.keys[self.at :], self.fits[self.at :]
            return None
        self.at += 1
        return self._fit(self.fits[self.at - 1], tol)

    def add(self, fit: TableFit) -> None:
        """Keep the answer, and write the file."""
        parts = [fit.loadings, fit.offset, fit.own, fit.second]
        self.shapes = [list(part.shape) for part in parts]
        told = np.array([fit.elbo, fit.gap, float(fit.n_iter), float(fit.optimal)])
        self.keys.append(self.asked)
        self.fits.append(np.concatenate([told, *(part.ravel() for part in parts)]))
        self.at = len(self.keys)
        content = {"settings": self.settings, "seed": self.seed, "keys": self.keys, "shapes": self.shapes}
        self.file.write(content, [self.measured, np.stack(self.fits)])

    def _fit(self, flat: np.ndarray, tol: float) -> TableFit:
        from .model import TableFit

        sizes = [int(np.prod(shape)) for shape in self.shapes]
        if flat.size != 4 + sum(sizes):
            raise self.file.of_another("its points are of another size")
        parts = np.split(flat[4:], np.cumsum(sizes)[:-1])
        W, b, own, second = (part.reshape(shape) for part, shape in zip(parts, self.shapes, strict=True))
        return TableFit(float(flat[0]), float(flat[1]), W, b, own, second, int(flat[2]), bool(flat[3]), [], tol)

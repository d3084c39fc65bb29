"""Reading the files that travel with the package: standard library and numpy only."""

from __future__ import annotations

import csv
import json
from importlib.resources import files
from typing import Any

import numpy as np


def text(name: str) -> str:
    """The content of a file in ``datasets/data``."""
    return files(__package__).joinpath("data", name).read_text(encoding="utf-8")


def table(name: str) -> dict[str, list[str]]:
    """A csv file as columns of strings, by the names in its header."""
    header, *rows = csv.reader(text(name).splitlines())
    return {key: [row[j] for row in rows] for j, key in enumerate(header)}


def numbers(column: list[str]) -> np.ndarray:
    """A column as float64, NaN where the cell is empty."""
    return np.array([float(cell) if cell else np.nan for cell in column])


def document(name: str) -> Any:
    """A json file."""
    return json.loads(text(name))

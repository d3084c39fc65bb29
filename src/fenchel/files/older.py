"""Files of older formats: attributes that had another name, are gone or were not there, classes that stood elsewhere.

A new format adds its line here, and ``tests/stored`` keeps files of every one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

RENAMED: dict[int, dict[str, dict[str, str]]] = {  # up to that format: class, old name, new name
    1: {
        "fenchel.priors.dense:DenseCovariance": {"covariance": "_covariance"},
        "fenchel.priors.latents:Latents": {"Sigma": "given"},
        "fenchel.priors.rowblock:RowBlock": {"S": "given"},
    },
}


MOVED = {  # where it stood, and stands
    "fenchel.hyperparameters.integration.coordinates:Coordinates": "fenchel.hyperparameters.coordinates:Coordinates",
    "fenchel.priors.sparsity:Constraint": "fenchel.priors.constraints:Constraint",
    "fenchel.models.model:Dropped": "fenchel.models.frames:Dropped",
    "fenchel.terms.sizes:PCDeviation": "fenchel.hyperparameters.priors:PCDeviation",
}

GONE = {  # attributes of older files that nothing reads any more
    "fenchel.priors.sparsity:Pattern": ("T",),
    "fenchel.models.fitted:FittedModel": ("posterior", "known"),
    "fenchel.models.engines:IterativeModel": ("posterior", "known"),
    "fenchel.models.fitted_partitioned:FittedPartitioned": ("posterior", "known"),
    "fenchel.models.multinomial:FittedMultinomial": ("posterior", "known"),
}

_INTEGRATION = "fenchel.hyperparameters.integration"
ADDED: dict[str, dict[str, Callable[[Any], Any]]] = {  # attributes that older files lack: of the object, what they were
    f"{_INTEGRATION}.integrated:Integrated": {"doubts": lambda made: []},
    f"{_INTEGRATION}.theta:ThetaPosterior": {"peak": lambda made: made.mode},
    f"{_INTEGRATION}.density:LogDensity": {"_cells": lambda made: None},
}


def complete(key: str, made: Any) -> None:
    """Give an object of a file the attributes that its class has got since."""
    for name, older in ADDED.get(key, {}).items():
        if name not in made.__dict__:
            made.__dict__[name] = older(made)


def name_now(key: str, name: str, version: int) -> str:
    """What an attribute of a file of that format is called now."""
    for until in sorted(RENAMED):
        if version <= until:
            name = RENAMED[until].get(key, {}).get(name, name)
    return name

"""Files of older formats: attributes that had another name then, and classes that stood elsewhere.

A new format adds its line here, and ``tests/stored`` keeps files of every one.
"""

from __future__ import annotations

RENAMED: dict[int, dict[str, dict[str, str]]] = {  # up to that format: class, old name, new name
    1: {
        "fenchel.priors.dense:DenseCovariance": {"covariance": "_covariance"},
        "fenchel.priors.latents:Latents": {"Sigma": "given"},
        "fenchel.priors.rowblock:RowBlock": {"S": "given"},
    },
}


MOVED = {"fenchel.priors.sparsity:Constraint": "fenchel.priors.constraints:Constraint"}  # where it stood, and stands


def name_now(key: str, name: str, version: int) -> str:
    """What an attribute of a file of that format is called now."""
    for until in sorted(RENAMED):
        if version <= until:
            name = RENAMED[until].get(key, {}).get(name, name)
    return name

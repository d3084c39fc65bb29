"""Where torch computes: a device by its name, rows moved there, and the sentences where it is missing or full."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..checks import optional, problem
from .arrays import Array, ArrayLike, library_of, out_of_memory

_ON_HOST = "Leave device=None to compute with numpy."


def find_device(where: str, name: Any) -> Any:
    """torch's device of that name, once it is known to be there and to hold doubles; None for None.

    Examples
    --------
    >>> from fenchel.linalg.devices import find_device
    >>> find_device("fit", None) is None
    True
    """
    if name is None:
        return None
    torch = optional(where, "torch")
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        raise problem(where, f"device = {name!r}", '"cuda", "cuda:0", ..., "cpu" or None', _ON_HOST) from None
    if device.type not in ("cuda", "cpu"):
        raise problem(where, f"device = {name!r} has no float64", '"cuda" or "cpu"', _ON_HOST)
    there = torch.cuda.device_count() if device.type == "cuda" else 1
    if (device.index or 0) >= there:
        got = f"device = {name!r}, and torch {torch.__version__} sees {there or 'no'} GPU{'s' * (there > 1)} here"
        advice = "Check nvidia-smi, and that torch is a build with CUDA."
        raise problem(where, got, "a device that is there", f"{_ON_HOST} {advice}")
    return device


def device_of(X: Any) -> Any:
    """The device of a tensor that is not in the host's memory; None for anything else."""
    return X.device if library_of(X) == "torch" and X.device.type != "cpu" else None


def on_device(X: ArrayLike, device: Any) -> Array:
    """X as float64 on a torch device; as it is where that is None."""
    if device is None:
        return X  # type: ignore[return-value]
    import torch

    return torch.as_tensor(X, dtype=torch.float64, device=device)


def device_memory(device: Any) -> float:
    """Bytes that a GPU has in all; without limit for the host's own, which others count."""
    if device is None or device.type != "cuda":
        return float("inf")
    import torch

    return float(torch.cuda.get_device_properties(device).total_memory)


@contextmanager
def says_when_full(where: str, device: Any, advice: str) -> Iterator[None]:
    """Memory that ends on the device as a sentence, with what can be done; the memory of the attempt is given back."""
    try:
        yield
    except Exception as error:
        if device is None or not out_of_memory(error):
            raise
        size = device_memory(device) / 2**30
    else:
        return
    release(device)
    raise problem(where, f"the {size:.0f} GiB of {device} are full", "a fit that is smaller than the device", advice)


def release(device: Any) -> None:
    """Give memory that is free but reserved back to the GPU."""
    if device is not None and device.type == "cuda":
        import torch

        torch.cuda.empty_cache()

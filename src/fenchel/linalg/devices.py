"""torch's devices: how to find one, move rows to it, and explain errors if it is missing or out of memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..checks import optional, problem
from .arrays import Array, ArrayLike, library_of, out_of_memory

_ON_HOST = "Leave device=None to compute with numpy."


def find_device(where: str, name: Any) -> Any:
    """torch's device of a given name, checked to exist and to support doubles; None for None.

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
    visible = torch.cuda.device_count() if device.type == "cuda" else 1
    if (device.index or 0) >= visible:
        got = f"device = {name!r}, and torch {torch.__version__} sees {visible or 'no'} GPU{'s' * (visible > 1)} here"
        advice = "Check nvidia-smi, and that torch is a build with CUDA."
        raise problem(where, got, "a device that is there", f"{_ON_HOST} {advice}")
    return device


def device_of(X: Any) -> Any:
    """The device of a tensor that is not in host memory; None for anything else."""
    return X.device if library_of(X) == "torch" and X.device.type != "cpu" else None


def on_device(X: ArrayLike, device: Any) -> Array:
    """X as float64 on a torch device; unchanged if ``device`` is None."""
    if device is None:
        return X  # type: ignore[return-value]
    import torch

    return torch.as_tensor(X, dtype=torch.float64, device=device)


def device_memory(device: Any) -> float:
    """Total bytes of memory of a GPU; infinite for the host, whose memory is checked elsewhere."""
    if device is None or device.type != "cuda":
        return float("inf")
    import torch

    return float(torch.cuda.get_device_properties(device).total_memory)


@contextmanager
def says_when_full(where: str, device: Any, advice: str) -> Iterator[None]:
    """Turn errors of exhausted device memory into a message with advice, and release the memory of the attempt."""
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
    """Return reserved but unused memory to the GPU."""
    if device is not None and device.type == "cuda":
        import torch

        torch.cuda.empty_cache()

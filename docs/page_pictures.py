"""Pictures of the pages of families and terms: ``draw(folder)`` writes families/WORD.png and terms/WORD.png.

A family is drawn as p(y given eta) at three values of eta, by the library's own density. A term is drawn as effects
that its prior may have: Gaussian vectors with the covariance that its page states.
"""

from collections.abc import Callable
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.linalg import eigh

from fenchel.likelihoods import WORDS, BetaBinomial, Binomial, Gamma, Ordinal, OrdinalProbit, Weibull

COLOURS = ("#0072B2", "#D55E00", "#009E73")
SHOWN = {  # where a family's own start shows little
    "binomial": Binomial(10),
    "beta-binomial": BetaBinomial(10, precision=4.0),
    "gamma": Gamma(3.0),
    "weibull": Weibull(2.0),
    "ordinal": Ordinal([-2.0, 0.0, 2.0]),
    "ordinal-probit": OrdinalProbit([-1.0, 0.0, 1.0]),
}
GRID = {  # of y, by support
    "real": np.linspace(-5, 5, 300),
    "positive": np.linspace(0.02, 8, 300),
    "unit": np.linspace(0.005, 0.995, 300),
}


def draw(folder: Path) -> None:
    """Every picture that is not there yet."""
    for kind, words, picture in (("families", WORDS, family), ("terms", TERMS, term)):
        (folder / kind).mkdir(parents=True, exist_ok=True)
        for word in words:
            path = folder / kind / f"{word}.png"
            if not path.exists():
                with matplotlib.rc_context({"font.size": 9}):
                    picture(word).savefig(path, dpi=110)


def _figure(wide: float = 5.0) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(wide, 2.8), layout="constrained")
    ax = figure.subplots()
    ax.spines[["top", "right"]].set_visible(False)
    return figure, ax


# -- families -------------------------------------------------------------------------------------------------
def density(likelihood: object, y: np.ndarray, eta: float) -> np.ndarray:
    """p(y given eta), by the likelihood itself."""
    rows = likelihood.prepare(y)  # type: ignore[attr-defined]
    at = likelihood.log_density(np.array([eta]), rows)  # type: ignore[attr-defined]
    return np.exp(np.asarray(at).reshape(len(y), -1)[:, 0])


def family(word: str) -> Figure:
    """Densities at three eta; of labels and levels the probability of each, as eta goes up."""
    likelihood = SHOWN.get(word, WORDS[word])
    figure, ax = _figure()
    if likelihood.support == "levels":
        eta, n_levels = np.linspace(-5, 5, 120), 4 if word.startswith("ordinal") else 2
        at = np.array([density(likelihood, np.arange(float(n_levels)), e) for e in eta])
        for k in range(n_levels):
            ax.plot(eta, at[:, k], label=f"y = {k}", color=matplotlib.colormaps["viridis"](k / n_levels))
        ax.set(xlabel="eta", ylabel="probability")
    else:
        least = 1.0 if word.startswith("truncated") else 0.0
        counts = np.arange(least, 11.0)
        y = counts if likelihood.support == "count" else GRID[likelihood.support]
        for eta, colour in zip((-1.0, 0.0, 1.0), COLOURS, strict=True):
            line = "o-" if likelihood.support == "count" else "-"
            ax.plot(y, density(likelihood, y, eta), line, ms=3, lw=1.3, color=colour, label=f"eta = {eta:.0f}")
        ax.set(xlabel="y", ylabel="p(y | eta)", ylim=(0, None))
    ax.legend(frameon=False)
    return figure


# -- terms ----------------------------------------------------------------------------------------------------
T = np.arange(60.0)
X = np.linspace(0, 1, 200)
SIDE = 24


def drawn(K: np.ndarray, size: int = 3) -> np.ndarray:
    """Draws of N(0, K), (size, n), from a frozen stream."""
    values, vectors = eigh(K)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    return (root @ np.random.default_rng(4).normal(size=(len(K), size))).T


def scaled(Q: np.ndarray, flat: int) -> np.ndarray:
    """The pseudo-inverse of a structure, divided by its typical variance."""
    values, vectors = eigh(Q)
    K = (vectors[:, flat:] / values[flat:]) @ vectors[:, flat:].T
    return K / np.exp(np.mean(np.log(np.diag(K))))


def differences(order: int) -> np.ndarray:
    D = np.diff(np.eye(T.size), order, axis=0)
    return scaled(D.T @ D, order)


def seasons() -> np.ndarray:
    """Two waves a year, whose sizes change slowly."""
    away = T[:, None] - T
    waves = np.cos(2 * np.pi * away / 12) + 0.5 * np.cos(4 * np.pi * away / 12)
    return waves * np.exp(-np.abs(away) / 60)


def near(points: np.ndarray, length: float) -> np.ndarray:
    """Matern of 3/2."""
    away = np.sqrt(3.0) * np.linalg.norm(points[:, None] - points, axis=2) / length
    return (1.0 + away) * np.exp(-away)


def plane(length: float = 0.25) -> np.ndarray:
    x, y = np.meshgrid(np.linspace(0, 1, SIDE), np.linspace(0, 1, SIDE))
    return near(np.column_stack([x.ravel(), y.ravel()]), length)


def lattice() -> np.ndarray:
    """Regions of a square map whose neighbours share a side: D - A."""
    one = np.diag(np.r_[1.0, np.full(SIDE - 2, 2.0), 1.0]) - np.eye(SIDE, k=1) - np.eye(SIDE, k=-1)
    return np.kron(one, np.eye(SIDE)) + np.kron(np.eye(SIDE), one)


def paths(K: Callable[[], np.ndarray], along: np.ndarray, label: str) -> Callable[[Axes], None]:
    def show(ax: Axes) -> None:
        for values, colour in zip(drawn(K()), COLOURS, strict=True):
            ax.plot(along, values, lw=1.2, color=colour)
        ax.set(xlabel=label, ylabel="effect")

    return show


def image(K: Callable[[], np.ndarray], x: str, y: str) -> Callable[[Axes], None]:
    def show(ax: Axes) -> None:
        shown = ax.imshow(drawn(K(), 1)[0].reshape(SIDE, SIDE), origin="lower", cmap="viridis")
        ax.set(xlabel=x, ylabel=y, xticks=[], yticks=[])
        ax.figure.colorbar(shown, ax=ax, label="effect")

    return show


def levels(ax: Axes) -> None:
    values = np.random.default_rng(4).normal(size=20)
    ax.stem(np.arange(20), values, basefmt=" ")
    ax.set(xlabel="group", ylabel="effect")


def lines(ax: Axes) -> None:
    rng = np.random.default_rng(4)
    for level, slope in rng.normal(size=(12, 2)):
        ax.plot([0, 1], [level, level + slope], lw=1, color=COLOURS[0], alpha=0.7)
    ax.set(xlabel="x", ylabel="level and slope of each group")


def products() -> np.ndarray:
    D = np.diff(np.eye(SIDE), axis=0)
    walk = scaled(D.T @ D, 1)
    return np.kron(walk, walk)


def waves() -> np.ndarray:
    return near(X[:, None], 0.3)


_map, _places = ("regions of a map", ""), ("x", "y")
TERMS: dict[str, Callable[[Axes], None]] = {
    "group": lines,
    "iid": levels,
    "mm": levels,
    "generic": levels,
    "s": paths(waves, X, "x"),
    "gp": paths(waves, X, "x"),
    "matern": paths(lambda: near(T[:, None], 12.0), T, "time"),
    "rw1": paths(lambda: differences(1), T, "time"),
    "rw2": paths(lambda: differences(2), T, "time"),
    "ar1": paths(lambda: 0.8 ** np.abs(T[:, None] - T), T, "time"),
    "ar": paths(lambda: 0.97 ** np.abs(T[:, None] - T) * np.cos(0.6 * (T[:, None] - T)), T, "time"),
    "seasonal": paths(seasons, T, "time"),
    "te": image(lambda: plane(0.7), "x", "z"),
    "ti": image(lambda: plane(0.5), "x", "z"),
    "vecchia": image(plane, *_places),
    "field": image(plane, *_places),
    "icar": image(lambda: scaled(lattice(), 1), *_map),
    "bym": image(lambda: scaled(lattice(), 1) + 0.3 * np.eye(SIDE**2), *_map),
    "bym2": image(lambda: 0.8 * scaled(lattice(), 1) + 0.2 * np.eye(SIDE**2), *_map),
    "leroux": image(lambda: np.linalg.inv(0.2 * np.eye(SIDE**2) + 0.8 * lattice()), *_map),
    "interact": image(products, "time", "region"),
}


def term(word: str) -> Figure:
    """What the effects of a term may look like before any data."""
    figure, ax = _figure()
    TERMS[word](ax)
    return figure

"""Terms of formulas, drawn at random, each with its dense covariance at the rows of a table.

``draw_term(rng, kind, table, n)`` adds the columns that a term reads to the table and returns a ``DenseTerm``: its text
in a formula and a function (table, weights, values) -> (K, lines). ``values`` are the hyperparameters as a fit prints
them, a dict for each effect of the text; ``lines`` are the fixed columns that a term brings along.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import covariances as cov

Table = dict[str, Any]
Values = list[dict[str, Any]]
Dense = Callable[[Table, Any, Values], tuple[Any, Any]]


@dataclass
class DenseTerm:
    """``names`` are variables of the formula (a covariance, a mesh as (nodes, triangles)), ``graphs`` adjacencies."""

    text: str
    dense: Dense
    effects: int = 1  # of the fit
    names: Table = field(default_factory=dict)
    graphs: Table = field(default_factory=dict)


def no_lines(table: Table) -> Any:
    return np.zeros((len(next(iter(table.values()))), 0))


def only(K: Callable[[Table, Any, Values], Any]) -> Dense:
    return lambda t, w, v: (K(t, w, v), no_lines(t))


def chosen(labels: Any, levels: Any) -> Any:
    """Indicators (N, levels)."""
    return np.array([[1.0 * (a == b) for b in levels] for a in labels]).reshape(len(labels), -1)


def same(*columns: Any) -> Any:
    """Whether two rows agree in every column (N, N)."""
    pairs = list(zip(*columns, strict=True))
    return np.array([[1.0 * (a == b) for b in pairs] for a in pairs])


# -- columns ---------------------------------------------------------------------------------------
def add_group(rng: Any, table: Table, n: int, name: str, prefix: str) -> None:
    levels = int(rng.integers(2, 6))
    table[name] = np.array([f"{prefix}{k}" for k in rng.integers(0, levels, n)], dtype=object)


def add_number(rng: Any, table: Table, n: int, name: str) -> None:
    if name not in table:
        table[name] = rng.normal(size=n) * 10.0 ** rng.uniform(-1, 2) + rng.choice([0.0, 0.0, 3.0, 100.0])


def add_spread(rng: Any, table: Table, n: int, name: str) -> None:
    """Numbers that are different, or nearly all so."""
    places = rng.permutation(np.linspace(0.0, 1.0, n) + rng.uniform(-0.3, 0.3, n) / n)
    table[name] = places * 10.0 ** rng.uniform(-1, 2) + rng.choice([0.0, 0.0, 50.0])


def add_steps(rng: Any, table: Table, n: int, name: str, least: int = 4) -> None:
    last = int(rng.integers(least, least + 5))
    t = rng.integers(0, last + 1, n)
    t[:2] = 0, last
    table[name] = t + int(rng.choice([0, 2000]))


def add_times(rng: Any, table: Table, n: int, name: str) -> None:
    """Irregular, each several times, none nearer to another than a hundredth of the span."""
    count = int(rng.integers(5, 9))
    times = np.cumsum(rng.uniform(0.1, 2.0, count)) * 10.0 ** rng.uniform(-1, 2)
    at = rng.integers(0, count, n)
    at[:count] = np.arange(count)
    table[name] = times[at]


def steps_of(t: Any) -> tuple[Any, int]:
    """Each row's step, and how many there are."""
    return (t - t.min()).astype(int), int(np.ptp(t)) + 1


def random_graph(rng: Any, table: Table, n: int, name: str) -> Any:
    """Regions of a graph, in parts and with islands, of which some have no rows; its adjacency."""
    R = int(rng.integers(3, 8))
    A = np.triu(rng.random((R, R)) < rng.choice([0.25, 0.6]), 1).astype(float)
    A[0, 1] = 1.0
    if R > 4 and rng.random() < 0.4:
        A[-1, :] = A[:, -1] = 0.0
    at = rng.integers(0, R, n)
    at[:2] = 0, 1
    table[name] = np.array([f"r{k}" for k in at], dtype=object)
    return A + A.T


def region_rows(labels: Any, R: int) -> Any:
    return chosen(labels, [f"r{k}" for k in range(R)])


# -- factors of products: text, covariance of the levels, rows -------------------------------------
def draw_factor(rng: Any, kind: str, table: Table, n: int) -> tuple[str, Callable[[dict[str, Any]], Any], Any, Table]:
    """(text, values -> covariance of the levels, rows (N, levels), graphs)."""
    if kind in ("icar", "leroux"):
        A = random_graph(rng, table, n, "r")
        R = len(A)
        if kind == "icar":
            K = cov.icar(A)
            return "icar(r)", lambda v: K, region_rows(table["r"], R), {"r": A}

        def leroux(v: dict[str, Any]) -> Any:
            return np.linalg.inv((1 - v["rho"]) * np.eye(R) + v["rho"] * cov.laplacian(A))

        return "leroux(r)", leroux, region_rows(table["r"], R), {"r": A}
    if kind == "iid(g)":
        add_group(rng, table, n, "g", "g")
        levels = sorted(set(table["g"]))
        return "iid(g)", lambda v: np.eye(len(levels)), chosen(table["g"], levels), {}
    if kind in ("wiener", "smooth walk", "ou", "matern"):
        add_times(rng, table, n, "u")
        times = np.unique(table["u"])
        gaps = np.abs(np.subtract.outer(times, times))
        made: dict[str, tuple[str, Callable[[dict[str, Any]], Any]]] = {
            "wiener": ("rw1(u)", lambda v: cov.wiener(times)),
            "smooth walk": ("rw2(u)", lambda v: cov.integrated_wiener(times)),
            "ou": ("ar1(u)", lambda v: np.exp(-2 * gaps / v["range"])),
            "matern": ("matern(u, nu=0.5)", lambda v: cov.matern(gaps, v["range"], 0.5)),
        }
        if kind == "matern":
            nu = float(rng.choice([0.5, 1.5, 2.5]))
            made["matern"] = f"matern(u, nu={nu})", lambda v: cov.matern(gaps, v["range"], nu)
        return *made[kind], chosen(table["u"], times), {}
    add_steps(rng, table, n, "t")
    at, T = steps_of(table["t"])
    lags, rows = np.abs(np.subtract.outer(np.arange(T), np.arange(T))), np.eye(T)[at]
    period = 3
    text, K = {
        "iid(t)": ("iid(t)", lambda v: np.eye(len(set(at)))),
        "rw1": ("rw1(t)", lambda v: cov.random_walk(T, 1)),
        "rw2": ("rw2(t)", lambda v: cov.random_walk(T, 2)),
        "ar1": ("ar1(t)", lambda v: v["phi"] ** lags),
        "seasonal": (f"seasonal(t, {period})", lambda v: cov.seasonal(T, period)),
    }[kind]
    if kind == "iid(t)":
        rows = chosen(at, sorted(set(at)))
    return text, K, rows, {}


SERIES = ("rw1", "rw2", "ar1", "seasonal", "wiener", "smooth walk", "ou", "matern")


def lines_of(kind: str, table: Table) -> Any:
    """What a series is held free of and gives back as fixed columns."""
    if kind == "rw2":
        return (table["t"] - np.mean([table["t"].min(), table["t"].max()]))[:, None]
    if kind == "smooth walk":
        return (table["u"] - np.unique(table["u"]).mean())[:, None]
    if kind == "seasonal":
        at, T = steps_of(table["t"])
        return cov.season_patterns(T, 3)[at]
    return no_lines(table)


def draw_series(rng: Any, kind: str, table: Table, n: int) -> DenseTerm:
    text, K, rows, _ = draw_factor(rng, kind, table, n)
    lines = lines_of(kind, table)

    def dense(t: Table, w: Any, v: Values) -> tuple[Any, Any]:
        return v[0]["sd"] ** 2 * rows @ K(v[0]) @ rows.T, lines

    return DenseTerm(text, dense)


def draw_replicates(rng: Any, kind: str, table: Table, n: int) -> DenseTerm:
    """A series for each group, with lines of its own."""
    text, K, rows, _ = draw_factor(rng, kind, table, n)
    add_group(rng, table, n, "g", "g")
    groups = chosen(table["g"], sorted(set(table["g"])))
    one = lines_of(kind, table)
    lines = (groups[:, :, None] * one[:, None, :]).reshape(n, -1)

    def dense(t: Table, w: Any, v: Values) -> tuple[Any, Any]:
        return v[0]["sd"] ** 2 * (groups @ groups.T) * (rows @ K(v[0]) @ rows.T), lines

    return DenseTerm(text[:-1] + ", by=g)", dense)


def draw_interaction(rng: Any, first: str, second: str, table: Table, n: int) -> DenseTerm:
    a, b = draw_factor(rng, first, table, n), draw_factor(rng, second, table, n)

    def K(t: Table, w: Any, v: Values) -> Any:
        A, B = (rows @ covariance(v[0]) @ rows.T for _, covariance, rows, _ in (a, b))
        return v[0]["sd"] ** 2 * A * B

    return DenseTerm(f"interact({a[0]}, {b[0]})", only(K), graphs={**a[3], **b[3]})


# -- groups ----------------------------------------------------------------------------------------
def draw_groups(rng: Any, kind: str, table: Table, n: int) -> DenseTerm:
    add_group(rng, table, n, "g", "g")
    add_group(rng, table, n, "h", "h")
    g, h = table["g"], table["h"]
    if kind == "(1|g)":
        return DenseTerm("(1|g)", only(lambda t, w, v: v[0]["sd"] ** 2 * same(g)))
    if kind == "crossed":
        return DenseTerm(
            "(1|g) + (1|h)", only(lambda t, w, v: v[0]["sd"] ** 2 * same(g) + v[1]["sd"] ** 2 * same(h)), 2
        )
    if kind == "(1|g:h)":
        return DenseTerm("(1|g:h)", only(lambda t, w, v: v[0]["sd"] ** 2 * same(g, h)))
    if kind == "(1|g/h)":
        return DenseTerm("(1|g/h)", only(lambda t, w, v: v[0]["sd"] ** 2 * same(g) + v[1]["sd"] ** 2 * same(g, h)), 2)
    if kind == "known covariance":
        levels = sorted(set(g))
        B = rng.normal(size=(len(levels), len(levels) + 2))
        A, Z = B @ B.T / len(levels), chosen(g, levels)
        dense = only(lambda t, w, v: v[0]["sd"] ** 2 * Z @ A @ Z.T)
        return DenseTerm("(1|gr(g, cov=A))", dense, names={"A": (levels, A)})
    levels = sorted({*g, *(f"g{k}" for k in range(3))})
    table["g2"] = np.array(rng.choice(levels, n), dtype=object)
    if kind == "mm weights":
        table["m1"], table["m2"] = rng.uniform(0.1, 2, n), rng.uniform(0, 2, n)
        share = table["m1"] / (table["m1"] + table["m2"])
        text = "(1|mm(g, g2, weights=[m1, m2]))"
    else:
        share, text = np.full(n, 0.5), "(1|mm(g, g2))"
    Z = share[:, None] * chosen(g, levels) + (1 - share)[:, None] * chosen(table["g2"], levels)
    return DenseTerm(text, only(lambda t, w, v: v[0]["sd"] ** 2 * Z @ Z.T))


def draw_slopes(rng: Any, kind: str, table: Table, n: int) -> DenseTerm:
    """b[g] ~ N(0, S), S of the columns as they come."""
    add_group(rng, table, n, "g", "g")
    add_number(rng, table, n, "x")
    g, x = table["g"], table["x"]
    if kind == "(x||g)":
        return DenseTerm(
            "(x||g)", only(lambda t, w, v: same(g) * (v[0]["sd"] ** 2 + v[1]["sd"] ** 2 * np.outer(x, x))), 2
        )
    if kind == "(0+x|g)":
        return DenseTerm("(0+x|g)", only(lambda t, w, v: v[0]["sd"] ** 2 * same(g) * np.outer(x, x)))
    columns, names, text = [np.ones(n), x], ["intercept", "x"], "(x|g)"
    if kind == "(x+z|g)":
        add_number(rng, table, n, "z")
        columns, names, text = [*columns, table["z"]], [*names, "z"], "(x+z|g)"
    if kind == "(f|g)":
        table["f"] = np.array(["a", "b", "c", *rng.choice(["a", "b", "c"], n - 3)], dtype=object)
        columns = [np.ones(n), *(1.0 * (table["f"] == level) for level in "bc")]
        names, text = ["intercept", "f[b]", "f[c]"], "(f|g)"
    B = np.stack(columns, axis=1)

    def K(t: Table, w: Any, v: Values) -> Any:
        sd = np.array([v[0][f"sd {name}"] for name in names])
        C = np.eye(len(names))
        for i in range(1, len(names)):
            for j in range(i):
                C[i, j] = C[j, i] = v[0][f"correlation {names[j]}, {names[i]}"]
        return same(g) * (B @ (C * np.outer(sd, sd)) @ B.T)

    return DenseTerm(text, only(K))


# -- regions ---------------------------------------------------------------------------------------
def draw_regions(rng: Any, kind: str, table: Table, n: int) -> DenseTerm:
    A = random_graph(rng, table, n, "r")
    R, Z = len(A), region_rows(table["r"], len(A))
    factor, text = np.ones(n), kind
    if kind == "icar(r, by=x)":
        add_number(rng, table, n, "x")
        factor = table["x"]

    def K(t: Table, w: Any, v: Values) -> Any:
        if kind == "bym2(r)":
            C = v[0]["phi"] * cov.icar(A) + (1 - v[0]["phi"]) * np.eye(R)
        elif kind == "leroux(r)":
            C = np.linalg.inv((1 - v[0]["rho"]) * np.eye(R) + v[0]["rho"] * cov.laplacian(A))
        else:
            C = cov.icar(A)
        if kind == "bym2(r)":  # an island has the sd of the term, whatever phi
            alone = ~A.any(axis=1)
            C[alone, alone] = 1.0
        return v[0]["sd"] ** 2 * np.outer(factor, factor) * (Z @ C @ Z.T)

    return DenseTerm(text, only(K), graphs={"r": A})


# -- processes and smooths -------------------------------------------------------------------------
def draw_process(rng: Any, kind: str, table: Table, n: int) -> DenseTerm:
    word, _, form = kind.partition(" ")
    name = str(rng.choice(["matern12", "matern32", "matern52", "rbf"]))
    several = form in ("2", "isotropic", "neighbours")
    for column in ("x", "z")[: 1 + several]:
        add_spread(rng, table, n, column)
    if form == "isotropic":
        table["z"] = (table["z"] - table["z"].min()) / np.ptp(table["z"]) * np.ptp(table["x"])
    X = np.stack([table[c] for c in ("x", "z")[: 1 + several]], axis=1)
    options = f", kernel='{name}'" + (", isotropic=True" if form == "isotropic" else "")
    if word == "vecchia":
        options += f", neighbours={3 if form == 'neighbours' else n}"
    nugget = 1e-6 if word == "gp" else 1e-8

    def correlation(P: Any, v: dict[str, Any]) -> Any:
        ranges = [v["range"]] * P.shape[1] if "range" in v else [v["range x"], v["range z"]]
        r2 = sum((np.subtract.outer(p, p) / reach) ** 2 for p, reach in zip(P.T, ranges, strict=True))
        return cov.kernel(name, np.sqrt(r2)) + nugget * (r2 == 0)

    def K(t: Table, w: Any, v: Values) -> Any:
        if form != "neighbours":
            return v[0]["sd"] ** 2 * correlation(X, v[0])
        points, near = v[0]["points"], v[0]["neighbours"]  # the order is the term's own choice
        C = cov.nearest_given(correlation(points, v[0]), [[int(j) for j in row if j >= 0] for row in near])
        at = [int(np.flatnonzero((points == x).all(axis=1))[0]) for x in X]
        return v[0]["sd"] ** 2 * C[np.ix_(at, at)]

    return DenseTerm(f"{word}({'x, z' if several else 'x'}{options})", only(K))


def draw_field(rng: Any, kind: str, table: Table, n: int) -> DenseTerm:
    """On a mesh of our own, a grid of slanted squares."""
    nu = int(kind[-1])
    side, unit = int(rng.integers(4, 7)), 10.0 ** rng.uniform(-1, 2)
    i, j = (a.ravel() for a in np.meshgrid(np.arange(side), np.arange(side), indexing="ij"))
    nodes = unit * np.stack([i + 0.3 * j, j + 0.1 * np.sin(i)], axis=1)
    corner = [a * side + b for a in range(side - 1) for b in range(side - 1)]
    triangles = np.array([t for c in corner for t in ((c, c + side, c + side + 1), (c, c + side + 1, c + 1))])
    inside = rng.dirichlet(np.ones(3), n)
    points = (inside[:, :, None] * nodes[triangles[rng.integers(0, len(triangles), n)]]).sum(axis=1)
    table["x"], table["z"] = points.T.copy()

    def K(t: Table, w: Any, v: Values) -> Any:
        return v[0]["sd"] ** 2 * cov.matern_field(nodes, triangles, points, v[0]["range"], nu)

    return DenseTerm(f"matern(x, z, mesh=M, nu={nu})", only(K), names={"M": (nodes, triangles)})


def draw_curve(rng: Any, kind: str, table: Table, n: int) -> DenseTerm:
    """s(x): its penalised part, beside the level and the line over the rows."""
    _, bs, by = [*kind.split(", "), "", ""][:3]
    bs = bs or "cr"
    plane = kind == "s(x, z)"
    columns = ("x", "z") if plane else ("x",)
    for column in columns:
        add_spread(rng, table, n, column)
    X = np.stack([table[c] for c in columns], axis=1)
    k = int(rng.integers(6, 9)) if plane or rng.random() < 0.5 else min(10, len(np.unique(X[:, 0])))
    text = "s(x, z" if plane else "s(x" + (f", bs='{bs}'" if bs != "cr" else "")
    text += f", k={k}" if k != 10 or bs == "ps" else ""
    if by == "factor":
        table["f"] = np.array(["a", "b", *rng.choice(["a", "b"], n - 2)], dtype=object)
        text += ", by=f"
    if by == "number":
        table["b"] = rng.normal(size=n) + 1.0
        text += ", by=b"

    def dense(t: Table, w: Any, v: Values) -> tuple[Any, Any]:
        weights = np.ones(n) if w is None else w
        mean = np.average(X, axis=0, weights=weights)
        lines = np.zeros((n, 0)) if bs == "cc" and not plane else X - mean
        free = np.hstack([np.ones((n, 1)), lines / np.abs(X - mean).max(axis=0)[: lines.shape[1]]])
        if plane or bs == "tp":
            basis = cov.thin_plate(X, k)
        elif bs == "ps":
            basis = cov.p_spline(X[:, 0], k)
        else:
            basis = cov.cubic(X[:, 0], k, bs == "cc")
        K = cov.curve(*basis, free, weights)
        if by == "number":
            return v[0]["sd"] ** 2 * np.outer(t["b"], t["b"]) * K, t["b"][:, None] * np.hstack([np.ones((n, 1)), lines])
        if by == "factor":
            each = {level: 1.0 * (t["f"] == level) for level in "ab"}
            total = sum(v[0][f"sd[{level}]"] ** 2 * np.outer(z, z) for level, z in each.items())
            return total * K, np.hstack([z[:, None] * lines for z in each.values()])
        return v[0]["sd"] ** 2 * K, lines

    return DenseTerm(text + ")", dense)


def draw_surface(rng: Any, kind: str, table: Table, n: int) -> DenseTerm:
    for column in ("x", "z"):
        add_spread(rng, table, n, column)
    x, z, k = table["x"], table["z"], [int(rng.integers(4, 6)) for _ in range(2)]
    main = kind == "te(x, z)"

    def dense(t: Table, w: Any, v: Values) -> tuple[Any, Any]:
        weights = np.ones(n) if w is None else w
        a, b = (c - np.average(c, weights=weights) for c in (x, z))
        lines = np.stack([a, b, a * b] if main else [a * b], axis=1)
        free = np.hstack([np.ones((n, 1)), lines / np.abs(lines).max(axis=0)])
        bases = [cov.cubic(x, k[0]), cov.cubic(z, k[1])]
        if not main:
            bases = [cov.centred(*basis, weights) for basis in bases]
        return cov.surface(bases, (v[0]["sd along x"], v[0]["sd along z"]), free, weights), lines

    return DenseTerm(f"{kind[:2]}(x, z, k=[{k[0]}, {k[1]}])", dense)


def draw_autoregression(rng: Any, kind: str, table: Table, n: int) -> DenseTerm:
    p = int(kind[-2])
    add_steps(rng, table, n, "t", p + 2)
    at, _ = steps_of(table["t"])
    lags = np.abs(np.subtract.outer(at, at))

    def K(t: Table, w: Any, v: Values) -> Any:
        return v[0]["sd"] ** 2 * cov.autoregressive(lags, [v[0][f"phi {j + 1}"] for j in range(p)])

    return DenseTerm(f"ar(t, {p})", only(K))


TERMS: dict[str, tuple[Callable[[Any, str, Table, int], DenseTerm], list[str]]] = {
    "groups": (draw_groups, ["(1|g)", "crossed", "(1|g:h)", "(1|g/h)", "known covariance", "mm", "mm weights"]),
    "slopes": (draw_slopes, ["(x|g)", "(x||g)", "(0+x|g)", "(x+z|g)", "(f|g)"]),
    "series": (draw_series, list(SERIES)),
    "autoregressions": (draw_autoregression, ["ar(t, 2)", "ar(t, 3)"]),
    "regions": (draw_regions, ["icar(r)", "bym2(r)", "leroux(r)", "icar(r, by=x)"]),
    "processes": (draw_process, ["gp 1", "gp 2", "gp isotropic", "vecchia 1", "vecchia 2", "vecchia neighbours"]),
    "fields": (draw_field, ["matern(x, z) nu 1", "matern(x, z) nu 2"]),
    "smooths": (
        draw_curve,
        ["s(x)", "s(x), ps", "s(x), cc", "s(x), tp", "s(x, z)", "s(x), cr, factor", "s(x), cr, number"],
    ),
    "surfaces": (draw_surface, ["te(x, z)", "ti(x, z)"]),
    "series by group": (
        lambda rng, kind, table, n: draw_replicates(rng, kind[:-5], table, n),
        [f"{kind} by g" for kind in SERIES],
    ),
    "products": (
        lambda rng, kind, table, n: draw_interaction(rng, *kind.split(" x "), table, n),
        [f"{first} x {second}" for first in ("iid(g)", "icar", "leroux") for second in ("iid(t)", *SERIES)],
    ),
}
GROUPS = {kind: word for word, (_, kinds) in TERMS.items() for kind in kinds}


def draw_term(rng: Any, kind: str, table: Table, n: int) -> DenseTerm:
    return TERMS[GROUPS[kind]][0](rng, kind, table, n)

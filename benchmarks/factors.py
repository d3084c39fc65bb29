"""Factor models of tables: hidden cells predicted, and the time of an iteration over many rows.

    python benchmarks/factors.py            everything, about twenty minutes on two cores
    python benchmarks/factors.py --quick    one seed, fewer rows
    python benchmarks/factors.py --rows     the second part alone
    python benchmarks/factors.py --tables   the third part alone, under a minute

First, a tenth of the cells is hidden, the model learned without them, and each hidden cell priced at -log2 of the
probability it was given. The rivals of ``ProbabilisticPCA``: each column by its own frequencies (with a half added),
and Gaussian PCA, the usual shortcut: categories as 0/1 columns, the holes filled by a low-rank fit again and again
until they settle (iterative SVD, shrunk as probabilistic PCA's posterior mean is), the filled values clipped to [0.01,
0.99] and categories renormalised. Numbers of factors, 1 to 8, are chosen by the evidence of what is seen, or by hiding
another tenth of it; "best" is what Gaussian PCA would get if it knew the hidden cells. The last columns: in how many
seeds ours is better than the columns alone and Gaussian PCA as chosen, and the numbers of factors, a digit a seed; the
first for the evidence, the second for hidden cells.

Second, a Newton iteration over all rows of a 0/1 table against X @ W and a Cholesky factorisation of an L x L matrix a
row (numpy on the stack, the best of three), in one run, in turns.

Third, whole fits with CPU time. A table of 683 rows and 35 categorical columns of 2 to 7 levels, a tenth of the cells
missing: an evaluation of the evidence of all rows beside the library's general solver on the same rows (how they were
solved before they had a compiled loop) and beside numpy's exp of all predictors and the products that make W' Lam W of
every row and rho of every cell, its floor. Complete tables of real numbers beside scikit-learn's ``FactorAnalysis`` (to
the same log likelihood) and ``PCA``, and beside the same table learned row by row.
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
from collections.abc import Callable

import numpy as np
import scipy
from sklearn.decomposition import PCA, FactorAnalysis

import fenchel
from fenchel.datasets import load_house_votes, load_verbal_aggression, load_zoo
from fenchel.factors.columns import FactorTable, read
from fenchel.factors.factor_model import FactorModel, Parameters
from fenchel.factors.selection import fitted, held_out, hide, integrated, without_factors
from fenchel.factors.table_evidence import learn
from fenchel.likelihoods import BernoulliLogit, Gaussian, Likelihood, Mixed, MultinomialLogit
from fenchel.linalg import small
from fenchel.priors.batched import BatchedFeatures

SIZES = (1, 2, 3, 4, 5, 6, 7, 8)


def tables() -> dict[str, FactorTable]:
    zoo = load_zoo()
    legs = zoo.feature_names.index("legs")
    return {
        "house votes": read(load_house_votes().X),
        "verbal aggression, two categories": read(load_verbal_aggression(2).X),
        "verbal aggression, three categories": read(load_verbal_aggression(3).X, "multinomial"),
        "zoo": read(zoo.X, {legs: "multinomial"}),
    }


def bounded(table: FactorTable, bound: str) -> list[Likelihood]:
    """The columns' likelihoods under another bound, where they have it."""
    return [
        own.changed(bound=bound) if bound in own.bounds and own.n_predictors == 1 else own for own in table.likelihoods
    ]


# -- hidden cells --------------------------------------------------------------------------------------
def bits(log_p: np.ndarray) -> float:
    return float(-np.nanmean(log_p) / np.log(2))


def by_evidence(table: FactorTable, mask: np.ndarray, sizes: tuple[int, ...], bound: str) -> int:
    """The number of factors with the largest evidence of the cells that are not in ``mask``."""
    rest, best, chosen, worse = np.where(mask, np.nan, table.values), -np.inf, sizes[0], 0
    for size in sizes:
        model = FactorModel(bounded(table, bound), size)
        found, own = fitted(model, table, rest)
        value = integrated(model, own.apply(rest), found)
        best, chosen, worse = (value, size, 0) if value > best else (best, chosen, worse + 1)
        if worse == 2:
            break
    return chosen


def by_cells(table: FactorTable, mask: np.ndarray, sizes: tuple[int, ...], bound: str) -> int:
    """The number of factors that predicts another tenth of the cells best, those in ``mask`` unseen."""
    rest = FactorTable(table.columns, np.where(mask, np.nan, table.values), table.frame)
    inner, best, chosen, worse = hide(rest.values, 0.1, np.random.default_rng(99)), np.inf, sizes[0], 0
    for size in sizes:
        value = bits(held_out(FactorModel(bounded(table, bound), size), rest, inner))
        best, chosen, worse = (value, size, 0) if value < best else (best, chosen, worse + 1)
        if worse == 2:
            break
    return chosen


def ours(table: FactorTable, mask: np.ndarray, size: int, bound: str) -> float:
    return bits(held_out(FactorModel(bounded(table, bound), size), table, mask))


def indicators(table: FactorTable) -> tuple[np.ndarray, list[slice]]:
    """0/1 columns: one for two levels, K for K; NaN for holes."""
    parts, slices, at = [], [], 0
    for j, column in enumerate(table.columns):
        y = table.values[:, j]
        wanted = np.array([1.0]) if column.n_levels == 2 else np.arange(float(column.n_levels))
        parts.append(np.where(np.isnan(y)[:, None], np.nan, y[:, None] == wanted))
        slices.append(slice(at, at + wanted.size))
        at += wanted.size
    return np.concatenate(parts, axis=1), slices


def gaussian_pca(table: FactorTable, mask: np.ndarray, size: int, sweeps: int = 500) -> np.ndarray:
    """log p of the hidden cells by clipped low-rank values."""
    X, slices = indicators(table)
    wide = np.concatenate([np.repeat(mask[:, [j]], s.stop - s.start, axis=1) for j, s in enumerate(slices)], axis=1)
    hole = np.isnan(X) | wide
    X = np.where(hole, np.nan, X)
    filled = np.where(hole, np.nanmean(X, axis=0), X)
    for _ in range(sweeps):
        middle = filled.mean(axis=0)
        U, d, Vt = np.linalg.svd(filled - middle, full_matrices=False)
        noise = np.mean(d[size:] ** 2) if d.size > size else 0.0
        shrunk = (d[:size] ** 2 - noise) / d[:size]  # the posterior mean of probabilistic PCA
        low = middle + (U[:, :size] * shrunk) @ Vt[:size]
        change = np.max(np.abs(low[hole] - filled[hole]), initial=0.0)
        filled = np.where(hole, low, X)
        if change < 1e-6:
            break
    p = np.clip(filled, 0.01, 0.99)
    out = np.full(mask.shape, np.nan)
    for j, own in enumerate(slices):
        rows = mask[:, j]
        y = table.values[rows, j].astype(int)
        if own.stop - own.start == 1:
            one = p[rows, own.start]
            out[rows, j] = np.log(np.where(y == 1, one, 1 - one))
        else:
            share = p[rows, own] / p[rows, own].sum(axis=1, keepdims=True)
            out[rows, j] = np.log(share[np.arange(y.size), y])
    return out


def pca_size(table: FactorTable, mask: np.ndarray, sizes: range) -> int:
    """The number of factors that predicts another tenth of the cells best, those in ``mask`` unseen."""
    rest = FactorTable(table.columns, np.where(mask, np.nan, table.values), table.frame)
    inner = hide(rest.values, 0.1, np.random.default_rng(99))
    return min(sizes, key=lambda size: bits(gaussian_pca(rest, inner, size)))


def predictions(seeds: int, sizes: tuple[int, ...], bound: str) -> None:
    """A line a table: means over seeds, and in how many of them we are better."""
    print(f"\nBits a hidden cell, a tenth of the cells hidden, {seeds} seeds; bound {bound!r}")
    print(f"  {'':<36}{'columns':>9}{'Gaussian PCA':>19}{'ProbabilisticPCA, factors by':>31}{'better than both':>19}")
    print(
        f"  {'':<36}{'alone':>9}{'chosen':>12}{'best':>7}{'evidence':>16}{'hidden cells':>15}{'in seeds':>19}", end=""
    )
    print(f"{'factors':>22}{'s':>6}")
    for name, table in tables().items():
        rows, chosen, began = [], [], time.perf_counter()
        for seed in range(seeds):
            mask = hide(table.values, 0.1, np.random.default_rng(seed))
            every = {size: bits(gaussian_pca(table, mask, size)) for size in range(1, 9)}
            usual = every[pca_size(table, mask, range(1, 9))]
            own = [choose(table, mask, sizes, bound) for choose in (by_evidence, by_cells)]
            found = {size: ours(table, mask, size, bound) for size in set(own)}
            mine = [found[size] for size in own]
            rows.append((bits(without_factors(table, mask)), usual, min(every.values()), *mine))
            chosen.append(own)
        cells = np.array(rows)
        better = (cells[:, 3:] < cells[:, :2].min(axis=1, keepdims=True)).sum(axis=0)
        a, b, c, d, e = cells.mean(axis=0)
        print(f"  {name:<36}{a:>9.3f}{b:>12.3f}{c:>7.3f}{d:>16.3f}{e:>15.3f}{f'{better[0]}, {better[1]}':>19}", end="")
        sizes_shown = ", ".join("".join(str(size) for size in column) for column in zip(*chosen, strict=True))
        print(f"{sizes_shown:>22}{time.perf_counter() - began:>6.0f}", flush=True)


# -- many rows -----------------------------------------------------------------------------------------
def simulated(rows: int, columns: int, size: int) -> tuple[np.ndarray, Parameters]:
    rng = np.random.default_rng(0)
    W, b = 0.7 * rng.normal(size=(columns, size)), rng.normal(size=columns)
    eta = rng.normal(size=(rows, size)) @ W.T + b
    X = (rng.random((rows, columns)) < 1 / (1 + np.exp(-eta))).astype(np.float64)
    return X, Parameters(W, b, (BernoulliLogit("tilted"),) * columns)


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def newton(model: FactorModel, X: np.ndarray, p: Parameters, start: list | None = None) -> tuple[float, float, int]:
    """Seconds of one Newton iteration over all rows; of the whole fit; iterations of the row that needs most."""
    idle = seconds(lambda: model.evidence(X, p, start, tol=1e300))
    one = seconds(lambda: model.evidence(X, p, start, tol=1e-8, max_iter=1))
    began = time.perf_counter()
    n = model.evidence(X, p, start, tol=1e-8).n_iter
    return max(0.0, one - idle), time.perf_counter() - began, n


def many_rows(rows: int, columns: int = 100, size: int = 10, repeats: int = 5) -> None:
    X, p = simulated(rows, columns, size)
    print(f"\n{rows} rows x {columns} binary columns, {size} factors, tilted bound, relative gap 1e-8")
    model = FactorModel([BernoulliLogit("tilted")] * columns, size)
    model.rows(X[:100], p)  # compile
    z = X[:, :size] - 0.5
    stack = np.eye(size) + np.einsum("ri,rj->rij", z, z)

    def floor() -> object:
        return X @ p.loadings, np.linalg.cholesky(stack)

    near = Parameters(p.loadings * 1.02, p.offset + 0.01, p.likelihoods)
    fits = model.rows(X, p)
    start = fits.start
    print(f"  largest gap of a row {fits.gap.max():.0e}, of all rows together {fits.gap.sum() / -fits.elbo.sum():.0e}")
    del fits
    runs = []
    for _ in range(repeats):
        best = min(seconds(floor) for _ in range(3))
        runs.append((best, *newton(model, X, p), *newton(model, X, near, start)))
    unit, cold, whole, n, warm, again, m = (float(np.median(x)) for x in zip(*runs, strict=True))
    print(f"  X @ W and {rows} Choleskys of {size} x {size}: {unit:.3f} s")
    print(f"  {'':<32}{'iterations':>11}{'s each':>9}{'times the floor (limit 12)':>28}{'s in all':>10}")
    print(f"  {'cold start':<32}{n:>11.0f}{cold:>9.3f}{cold / unit:>28.1f}{whole:>10.2f}")
    print(f"  {'warm start, loadings 2 % larger':<32}{m:>11.0f}{warm:>9.3f}{warm / unit:>28.1f}{again:>10.2f}")
    del start
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    model.rows(X, p)
    peak = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    print(f"  peak above X while fitting all rows: {peak / X.nbytes:.1f} X ({peak / 2**20:.0f} MiB)", flush=True)
    began = time.perf_counter()
    found = learn(model, X, rng=0)
    spent = time.perf_counter() - began
    bases = [np.linalg.qr(W)[0] for W in (found.parameters.loadings, p.loadings)]
    angle = np.linalg.svd(bases[0].T @ bases[1])[1].min()
    print(f"  W, b and strength learned: {found.n_iter} steps, {spent:.0f} s, {found.status}; ", end="")
    print(f"smallest cosine between the learned and the true factors {angle:.4f}")


# -- whole fits ----------------------------------------------------------------------------------------
def cpu(work: Callable[[], object], repeats: int = 3) -> float:
    """CPU seconds, the median."""
    found = []
    for _ in range(repeats):
        began = time.process_time()
        work()
        found.append(time.process_time() - began)
    return float(np.median(found))


def categorical(rows: int = 683, columns: int = 35, size: int = 3) -> FactorTable:
    rng = np.random.default_rng(0)
    z, out = rng.normal(size=(rows, size)), np.empty((rows, columns))
    for j in range(columns):
        K = 2 + j % 6
        eta = z @ rng.normal(size=(size, K)) + rng.normal(size=K) + rng.gumbel(size=(rows, K))
        out[:, j] = np.argmax(eta, axis=1)
    out[rng.random(out.shape) < 0.1] = np.nan
    return read(out, ["bernoulli" if j % 6 == 0 else "multinomial" for j in range(columns)])


def general(model: FactorModel, values: np.ndarray, p: Parameters) -> object:
    """The rows of a categorical table by ``infer``: cells as wide as the widest, a likelihood for each width."""
    n, widest, sizes = values.shape[0], max(model.widths), sorted(set(model.widths))
    place = np.concatenate([j * widest + np.arange(w) for j, w in enumerate(model.widths)])
    W, b = np.zeros((model.n_columns * widest, model.n_components)), np.zeros(model.n_columns * widest)
    W[place], b[place] = p.loadings, p.offset
    parts = [BernoulliLogit("tilted") if w == 1 else MultinomialLogit(w + 1, "last", "log-sum") for w in sizes]
    which = np.tile([sizes.index(w) for w in model.widths], n)
    return fenchel.infer(Mixed(parts, which), BatchedFeatures(W, n, b), values.ravel(), tol=1e-8)


def peak(work: Callable[[], object]) -> float:
    """MiB that Python and numpy asked for at once."""
    tracemalloc.start()
    work()
    out = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return out / 2**20


def whole_fits() -> None:
    table = categorical()
    print("\n683 rows x 35 categorical columns of 2 to 7 levels, a tenth of the cells missing; CPU seconds")
    for size in (2, 4):
        model = FactorModel(table.likelihoods, size)
        found = learn(model, table.values, max_iter=2)  # compile
        p = found.parameters
        ours = cpu(lambda model=model, p=p: model.evidence(table.values, p))
        theirs = cpu(lambda model=model, p=p: general(model, table.values, p), 1)
        pairs, eta = small.pairs(p.loadings), np.zeros((683, model.n_predictors))

        def floor(eta: np.ndarray = eta, pairs: np.ndarray = pairs) -> object:
            return np.exp(eta) @ pairs @ pairs.T

        unit = cpu(lambda floor=floor: [floor() for _ in range(20)]) / 20
        began = time.process_time()
        found = learn(model, table.values)
        spent = time.process_time() - began
        print(
            f"  {size} factors: one evaluation {ours:.3f}, {theirs / ours:.0f} times less than the general solver",
            end="",
        )
        print(f" ({theirs:.2f}), {ours / unit:.0f} floors; learned in {spent:.1f} ({found.n_iter} steps, ", end="")
        most = peak(lambda model=model: learn(model, table.values, max_iter=3))
        print(f"{'converged' if found.converged else found.status}), peak {most:.0f} MiB", flush=True)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 5)) @ rng.normal(size=(5, 30)) + rng.normal(size=(1000, 30)) * np.linspace(0.5, 2, 30)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    print("\n1,000 rows x 30 real columns, complete, 5 factors; CPU seconds")
    holed = np.vstack([X, np.full((1, 30), np.nan)])
    for noise in ("column", "shared"):
        model = FactorModel([Gaussian(1.0)] * 30, 5, noise=noise)
        options = {"strength": 0.0, "tol": 1e-10, "max_iter": 1000}
        ours = cpu(lambda model=model, options=options: learn(model, X, **options))
        rows = cpu(lambda model=model, options=options: learn(model, holed, **options), 1)
        found = learn(model, X, **options)
        if noise == "column":
            peer = FactorAnalysis(5, tol=1e-6, max_iter=10_000, svd_method="lapack")
        else:
            peer = PCA(5)
        theirs = cpu(lambda peer=peer: peer.fit(X))
        print(f"  noise {noise!r}: {ours:.4f}, row by row {rows:.2f} ({rows / ours:.0f} times); ", end="")
        print(f"{type(peer).__name__} {theirs:.4f} (we take {ours / theirs:.1f} times that); ", end="")
        print(f"log p above theirs {found.elbo - 1000 * peer.score(X):.1e}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rows", action="store_true", help="the second part alone")
    parser.add_argument("--cells", action="store_true", help="the first part alone")
    parser.add_argument("--tables", action="store_true", help="the third part alone")
    parser.add_argument("--bound", default="tilted")
    args = parser.parse_args()
    print(f"numpy {np.__version__}, scipy {scipy.__version__}, fenchel {fenchel.__version__}")
    if not (args.rows or args.tables):
        predictions(1 if args.quick else 5, SIZES[:3] if args.quick else SIZES, args.bound)
    if not (args.cells or args.tables):
        many_rows(5_000 if args.quick else 100_000, repeats=1 if args.quick else 3)
    if not (args.cells or args.rows):
        whole_fits()


if __name__ == "__main__":
    main()

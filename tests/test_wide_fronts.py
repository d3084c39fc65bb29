"""Wide fronts and the products they are made of, against matrices written out."""

import os
import subprocess
import sys
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from test_bordered import change_of, check, on_pattern
from test_tally import lattice

from fenchel.linalg import SparseCholesky, SymbolicCholesky, _fronts, machine, parallel_tree
from fenchel.linalg._fronts import WIDE
from fenchel.linalg.dense import NotPositiveDefinite
from fenchel.linalg.factorisation import symmetric_csc

sizes = st.integers(1, 40)


def overlapping(rng, widths, shared):
    """Groups of latents that are all joined to each other, each to some of the next, and ``shared`` ones to all."""
    edges = np.r_[0, np.cumsum(widths)]
    n = edges[-1] + shared
    on = np.eye(n, dtype=bool)
    for a, e in pairwise(edges):
        reach = min(edges[-1], e + int(rng.integers(0, 20)))
        on[a:reach, a:reach] = True
    on[edges[-1] :] = True
    on |= on.T
    B = rng.normal(size=(n, n)) * on
    B = (B + B.T) / 2
    return symmetric_csc(sp.csc_array(np.where(on, B + np.diag(1.5 * np.abs(B).sum(axis=1) + 0.1), 0.0)))


@settings(deadline=None, max_examples=25)
@given(st.lists(st.integers(1, 130), min_size=1, max_size=4), st.integers(0, 70), st.integers(0, 10_000))
def test_fronts_of_any_width(widths, shared, seed):
    rng = np.random.default_rng(seed)
    A = overlapping(rng, widths, shared)
    check(SymbolicCholesky(A).factor(A.data), A, rng)


@pytest.mark.parametrize("w", [WIDE - 1, WIDE, 48, 49, 97, 400])
def test_one_front(w):
    rng = np.random.default_rng(w)
    A = overlapping(rng, [w], 0)
    factor = SparseCholesky(A)
    assert factor.symbolic.start.size == 2
    check(factor, A, rng)
    np.testing.assert_allclose(
        factor.lower().toarray(), np.linalg.cholesky(A.toarray()[np.ix_(factor.symbolic.order, factor.symbolic.order)])
    )


@pytest.mark.parametrize("bad", [0, 20, 47, 48, 100, 149])
def test_the_first_bad_pivot_of_a_wide_front_is_named(bad):
    A = overlapping(np.random.default_rng(bad), [150], 0)
    order = SymbolicCholesky(A).order
    dense = A.toarray()
    dense[order[bad], order[bad]] = -1.0
    with pytest.raises(NotPositiveDefinite, match=f"the pivot of row {order[bad]} is not positive"):
        SparseCholesky(sp.csc_array(dense))


# -- parts of the tree side by side --------------------------------------------------------------------------
def answers(A, E, b, n_cores):
    """All that a factor says, on so many threads however small the tree is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parallel_tree, "PARALLEL", 0.0)
        patch.setattr(parallel_tree, "LARGE", 1e4)
        patch.setattr(parallel_tree, "cores", lambda ours=False: n_cores)
        factor = SymbolicCholesky(A).factor(A.data)
        out = [factor.solve(b), factor.sample(b), factor.inverse_data(), factor.stored_inverse(), factor.sandwich(E)]
        return factor, [np.array(factor.log_det), *out]


@settings(deadline=None, max_examples=25)
@given(
    st.sampled_from(["lattice", "groups", "forest", "chain"]),
    st.integers(2, 5),
    st.integers(1, 80),
    st.integers(0, 999),
)
def test_any_number_of_threads_gives_the_same_digits(kind, n_cores, columns, seed):
    rng = np.random.default_rng(seed)
    if kind == "groups":
        A = overlapping(rng, rng.integers(1, 60, 5), int(rng.integers(0, 40)))
    else:
        parts = [lattice(int(k)) for k in rng.integers(2, 14, 6 if kind == "forest" else 1)]
        line = sp.diags_array([-np.ones(299), 3.0 * np.ones(300), -np.ones(299)], offsets=[-1, 0, 1])
        A = symmetric_csc(line if kind == "chain" else sp.block_diag(parts))
    E, _ = change_of(A, rng)
    b = rng.normal(size=(A.shape[0], columns))
    factor, seen = answers(A, E, b, n_cores)
    for one, other in zip(answers(A, E, b, 1)[1], seen, strict=True):
        np.testing.assert_array_equal(one, other)
    check(factor, A, rng)


def test_stripes_of_a_very_large_front_have_the_same_digits():
    rng = np.random.default_rng(3)
    A = overlapping(rng, [560, 300], 280)
    E, _ = change_of(A, rng)
    b = rng.normal(size=(A.shape[0], 3))
    factor, seen = answers(A, E, b, 2)
    width = np.diff(factor.symbolic.start)
    assert width.max() > 512
    assert np.diff(factor.symbolic.ptr).max() > 256
    for one, other in zip(answers(A, E, b, 1)[1], seen, strict=True):
        np.testing.assert_array_equal(one, other)
    M = A.toarray()
    np.testing.assert_allclose(factor.inverse_data(), on_pattern(np.linalg.inv(M), A), atol=1e-13)
    for bad in (5, 600, 1130):
        M = A.toarray()
        M[factor.symbolic.order[bad], factor.symbolic.order[bad]] = -1.0
        with pytest.raises(NotPositiveDefinite, match=f"the pivot of row {factor.symbolic.order[bad]} is"):
            answers(symmetric_csc(sp.csc_array(M)), E, b, 2)


@pytest.mark.parametrize("n_cores", [2, 3, 8])
def test_a_schedule_has_every_front_once_and_parents_in_the_same_part_or_the_top(n_cores):
    S = SymbolicCholesky(lattice(40))
    plan = parallel_tree.Schedule(S, n_cores)
    np.testing.assert_array_equal(np.sort(np.concatenate(plan.nodes)), np.arange(S.parent.size))
    assert 2 <= len(plan.nodes) - 1 <= 2 * n_cores
    top = len(plan.nodes) - 1
    for k, up in enumerate(S.parent):
        assert up == -1 or plan.owner[up] in (plan.owner[k], top)
    work = np.diff(S.start) * (np.diff(S.start) + np.diff(S.ptr)) ** 2.0
    assert work[plan.nodes[-1]].sum() < 0.6 * work.sum()


def test_a_bad_pivot_is_found_in_any_part_and_in_the_top():
    A = lattice(25)
    S = SymbolicCholesky(A)
    for bad in range(0, 625, 48):
        data = A.toarray()
        data[S.order[bad], S.order[bad]] = -1.0
        with pytest.raises(NotPositiveDefinite, match="is not positive"):
            answers(symmetric_csc(sp.csc_array(data)), A.data, np.ones((625, 1)), 2)


def test_our_threads_run_where_blas_is_held_for_small_work_but_not_beside_others(monkeypatch):
    class Library:
        count = 4

        def get_num_threads(self):
            return self.count

        def set_num_threads(self, count):
            self.count = count

    library = Library()
    monkeypatch.setattr(machine, "libraries", lambda: SimpleNamespace(lib_controllers=[library]))
    assert machine.cores() == machine.cores(ours=True) == 4
    with machine.one_thread(ours=True):
        assert (machine.cores(), machine.cores(ours=True)) == (1, 4)
        with machine.one_thread():
            assert (machine.cores(), machine.cores(ours=True)) == (1, 1)
        assert machine.cores(ours=True) == 4
        assert machine.side_by_side([lambda: machine.cores(ours=True)] * 3, 2) == [1, 1, 1]
    assert machine.cores() == 4


# -- products ------------------------------------------------------------------------------------------------
def lower(S):
    """The symmetric matrix whose lower triangle this is."""
    return np.tril(S) + np.tril(S, -1).T


@settings(deadline=None)
@given(sizes, sizes, sizes, st.booleans(), st.integers(0, 10_000))
def test_products_of_matrices_row_by_row(r, w, n, transposed, seed):
    rng = np.random.default_rng(seed)
    ld = 40 + int(rng.integers(0, 5))
    A, B, C, S, T = (rng.normal(size=(40, ld)) for _ in range(5))

    def after(function, *arguments, into=C, shape):
        """What a function leaves in a matrix: the part meant, with what lies around it as it was."""
        out = into.copy()
        function(*arguments, out.reshape(-1), ld)
        rest = out.copy()
        rest[: shape[0], : shape[1]] = into[: shape[0], : shape[1]]
        np.testing.assert_array_equal(rest, into)
        return out[: shape[0], : shape[1]]

    flat = {name: (X.reshape(-1), ld) for name, X in zip("ABST", (A, B, S, T), strict=True)}
    first = A[:w, :r].T if transposed else A[:r, :w]
    for turned, second in ((False, B[:w, :n]), (True, B[:n, :w].T)):
        found = after(_fronts.add_product, r, n, w, 2.0, *flat["A"], transposed, *flat["B"], turned, 0.5, shape=(r, n))
        np.testing.assert_allclose(found, 2.0 * first @ second + 0.5 * C[:r, :n], atol=1e-12)
    found = after(_fronts.add_symmetric_product, r, w, -1.0, *flat["S"], True, *flat["B"], 0.5, shape=(r, w))
    np.testing.assert_allclose(found, 0.5 * C[:r, :w] - lower(S[:r, :r]) @ B[:r, :w], atol=1e-12)
    found = after(_fronts.add_symmetric_product, r, w, -1.0, *flat["S"], False, *flat["B"], 0.5, shape=(r, w))
    np.testing.assert_allclose(found, 0.5 * C[:r, :w] - B[:r, :w] @ lower(S[:w, :w]), atol=1e-12)
    found = after(_fronts.subtract_square, r, w, *flat["B"], shape=(r, r))
    square = C[:r, :r] - B[:r, :w] @ B[:r, :w].T
    np.testing.assert_allclose(found, np.tril(square) + np.triu(C[:r, :r], 1), atol=1e-12)
    found = after(_fronts.subtract_both, r, w, *flat["A"], *flat["B"], shape=(r, r))
    both = A[:r, :w] @ B[:r, :w].T
    np.testing.assert_allclose(np.tril(found), np.tril(C[:r, :r] - both - both.T), atol=1e-12)
    triangle = np.tril(T[:w, :w]).T if transposed else np.tril(T[:w, :w])
    found = after(_fronts.times_triangle, r, w, 3.0, *flat["T"], transposed, shape=(r, w))
    np.testing.assert_allclose(found, 3.0 * C[:r, :w] @ triangle, atol=1e-12)
    found = after(_fronts.triangle_times, w, n, 3.0, *flat["T"], transposed, shape=(w, n))
    np.testing.assert_allclose(found, 3.0 * triangle @ C[:w, :n], atol=1e-12)
    found = after(_fronts.triangle_square, w, into=T, shape=(w, w))
    np.testing.assert_allclose(np.tril(found), np.tril(np.tril(T[:w, :w]).T @ np.tril(T[:w, :w])), atol=1e-12)


def test_what_is_kept_on_disk_finds_the_products_in_another_process(tmp_path):
    """Where BLAS stands in memory changes from process to process."""
    code = """
import numpy as np
from fenchel.linalg._fronts import subtract_square
B, C = np.arange(6.0), np.zeros(9)
subtract_square(3, 2, B, 2, C, 3)
print(C.tolist(), sum(subtract_square.stats.cache_hits.values()))
"""
    where = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    seen = [
        subprocess.run([sys.executable, "-c", code], env=where, capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    values = [-1.0, 0.0, 0.0, -3.0, -13.0, 0.0, -5.0, -23.0, -41.0]
    assert seen == [f"{values} 0\n", f"{values} 1\n"]

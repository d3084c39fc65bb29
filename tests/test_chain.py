"""Small sparse matrices as chains of dense blocks, against matrices written out; and what that spares a first fit."""

import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from test_bordered import check, filled, lattice

from fenchel import gates
from fenchel.linalg import chain
from fenchel.linalg.chain import ChainAnalysis, find_chain
from fenchel.linalg.dense import NotPositiveDefinite
from fenchel.linalg.factorisation import analyse
from fenchel.linalg.row_pairs import pair_places

SMALL_BLOCKS = {"BLOCK": 8, "WHOLE": 8, "ONE_BLOCK": 0}


def bordered(rng, side, effects):
    """A lattice beside effects that touch all of its nodes."""
    B = np.ones((side * side, effects))
    return filled(sp.block_array([[lattice(side), B], [B.T, np.eye(effects)]], format="csc"), rng)


@settings(deadline=None, max_examples=30)
@given(st.integers(4, 7), st.integers(0, 3), st.integers(0, 10_000))
def test_chains_of_every_shape(side, effects, seed):
    rng = np.random.default_rng(seed)
    A = bordered(rng, side, effects) if effects else filled(lattice(side), rng)
    mixed = rng.permutation(A.shape[0])
    A = sp.csc_array(A[mixed][:, mixed])
    A.sort_indices()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SMALL_BLOCKS.items():
            patch.setattr(chain, name, value)
        found = find_chain(A)
    assert found.start.size > 2
    assert found.n_border == effects
    check(found.factor(A.data), A, rng)
    check(pickle.loads(pickle.dumps(found)).factor(A.data), A, rng)


def test_matrices_that_touch_nothing_and_small_ones():
    rng = np.random.default_rng(0)
    for A in (sp.eye_array(300, format="csc"), filled(lattice(3), rng), sp.csc_array(np.array([[2.0]]))):
        found = analyse(A)
        assert isinstance(found, ChainAnalysis)
        check(found.factor(A.data), A, rng)


def test_large_and_tangled_matrices_are_left_to_others():
    assert find_chain(sp.eye_array(gates.CHAIN_ROWS + 1, format="csc")) is None
    rng = np.random.default_rng(0)
    tangled = sp.random_array((1500, 1500), density=0.02, rng=rng)
    assert find_chain(sp.csc_array(tangled + tangled.T + sp.eye_array(1500))) is None


def test_a_pivot_that_is_not_positive_is_named():
    data = np.ones(400)
    data[333] = -1.0
    A = sp.csc_array(sp.diags_array(data))
    with pytest.raises(NotPositiveDefinite, match="row 333 "):
        find_chain(A).factor(A.data)


def test_pairs_of_few_rows_are_those_of_the_compiled_loop(monkeypatch):
    rng = np.random.default_rng(0)
    W = sp.random_array((40, 12), density=0.3, rng=rng, format="csr")
    W.sort_indices()
    pattern = sp.csc_array(abs(W[:8]).T @ abs(W[:8]))  # the last rows may have pairs outside of it
    pattern.sort_indices()
    each = np.diff(W.indptr).astype(np.int64)
    ptr = np.concatenate([[0], np.cumsum(each**2)])
    assert ptr[-1] < gates.NUMPY_PAIRS
    few = pair_places(W, pattern.indptr, pattern.indices, ptr)
    monkeypatch.setattr(gates, "NUMPY_PAIRS", 0)
    many = pair_places(W, pattern.indptr, pattern.indices, ptr)
    assert np.array_equal(few[2], many[2])
    assert 0 < few[2].sum() < 40
    keep = np.repeat(few[2], each**2)
    assert np.array_equal(few[0][keep], many[0][keep])
    assert np.array_equal(few[1], many[1])


def test_first_fits_of_small_tables_compile_nothing(tmp_path):
    code = """
import numpy as np, pandas as pd, fenchel
from numba.core import event
class Heard(event.Listener):
    def on_start(self, event): print("compiled", event.data["dispatcher"])
    def on_end(self, event): pass
event.register("numba:compile", Heard())
rng = np.random.default_rng(0)
g, x = np.arange(90) % 15, rng.normal(size=90)
data = pd.DataFrame({"g": g, "x": x, "z": rng.random(90), "y": rng.poisson(2.0, 90)})
graph = {i: [j for j in (i - 1, i + 1) if 0 <= j < 15] for i in range(15)}
fenchel.fit("y ~ x + (x|g)", data, family="poisson")
fenchel.fit("y ~ x + s(z)", data)
fenchel.fit("y ~ bym2(g)", data, family="poisson", graphs={"g": graph}, accuracy="fast")  # corrections of a map compile
kinds = data.assign(
    real=rng.normal(size=90),
    event=rng.integers(0, 2, 90),
    item=pd.Categorical(rng.integers(0, 4, 90), ordered=True),
    code=pd.Categorical(rng.choice(list("abc"), 90)),
).mask(rng.random((90, 8)) < 0.05)
for n_components in (2, "auto"):
    table = fenchel.ProbabilisticPCA(n_components, max_iter=20).fit(kinds.drop(columns=["g"]))
    table.transform(kinds.drop(columns=["g"]))
    table.impute(kinds.drop(columns=["g"]))
"""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}  # nothing was compiled before
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert "compiled" not in done.stdout

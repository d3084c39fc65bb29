"""What somebody who comes from lme4 or INLA tries first: graphs, group ids, maps, tables, dates with holes."""

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from fenchel import gmrf
from fenchel.estimators import GMRFRegressor

TOWNS = ["Ruegen", "Stralsund", "Rostock", "Wismar"]
LINE = np.diag(np.ones(3), 1) + np.diag(np.ones(3), -1)  # a path through the towns


def rows(names=TOWNS, times=3, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"town": np.repeat(names, times)})
    return X, rng.poisson(3.0, len(X)).astype(float)


def towns(graph, levels=None, **options):
    X, y = rows()
    levels = None if levels is None else {"town": levels}
    return GMRFRegressor({"town": ("icar", graph)}, levels=levels, learn=False, **options).fit(X, y)


# -- graphs ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array, sp.coo_array, pd.DataFrame, np.ndarray.tolist])
def test_nan_is_no_neighbour(form):
    A = LINE.copy()
    A[0, 2] = A[2, 0] = np.nan
    with pytest.raises(ValueError, match=r"graph\[0, 2\] is NaN; expected 0 or a weight .*\.fillna\(0\).*nan_to_num"):
        gmrf.as_adjacency(form(A))
    np.testing.assert_array_equal(gmrf.as_adjacency(form(LINE)).toarray(), LINE)


def test_nan_in_a_named_adjacency():
    frame = pd.DataFrame(LINE, index=TOWNS, columns=TOWNS)
    for holes in (frame.replace(0.0, np.nan), frame.astype("Int64").replace(0, pd.NA)):
        with pytest.raises(ValueError, match=r"is NaN; .*\.fillna\(0\)"):
            towns(holes)
        assert towns(holes.fillna(0)).elbo_ == pytest.approx(towns(frame).elbo_, abs=1e-12)


def test_a_graph_of_the_users_is_left_as_it_is():
    A = sp.csr_array(LINE)
    A.data[0] = A.data[1] = 0.0  # a stored zero on either side of an edge
    before = A.data.copy(), A.indices.copy(), A.indptr.copy()
    gmrf.as_adjacency(A)
    for now, then in zip((A.data, A.indices, A.indptr), before, strict=True):
        np.testing.assert_array_equal(now, then)


def test_neighbours_are_lists_of_names():
    near = {"Ruegen": ["Stralsund"], "Stralsund": ["Rostock"], "Rostock": ["Wismar"], "Wismar": []}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        right = towns(near)
        assert towns({town: iter(others) for town, others in near.items()}).elbo_ == right.elbo_
    assert right.elbo_ == pytest.approx(towns(LINE, TOWNS).elbo_, abs=1e-10)
    with pytest.raises(ValueError, match=r"neighbours of 'Ruegen' are 'Stralsund'; expected a list .*\['Stralsund'\]"):
        towns({"Ruegen": "Stralsund"})
    with pytest.raises(ValueError, match=r"neighbours of 'Ruegen' are 7; expected a list of neighbours"):
        towns({"Ruegen": 7})
    with pytest.raises(ValueError, match=r"a neighbour of 'Ruegen' is nan; expected a region's name"):
        towns({"Ruegen": [np.nan]})
    with pytest.raises(ValueError, match=r"a neighbour of 'Ruegen' is \['a'\]; expected a region's name"):
        towns({"Ruegen": [["a"]]})


def test_a_misspelt_neighbour_is_named():
    near = {"Ruegen": ["Stralsumd"], "Stralsund": ["Rostock", "Ruegen"], "Rostock": ["Wismar"], "Wismar": []}
    with pytest.warns(UserWarning, match=r"graph of 'town' names 'Stralsumd' only beside others, and X\['town'\]"):
        model = towns(near)
    assert len(model.levels_["town"]) == 5
    with pytest.raises(ValueError, match=r"the graph names 'Stralsumd', which levels\['town'\] does not"):
        towns(near, TOWNS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        towns(near, [*TOWNS, "Stralsumd"])


def test_outlines_are_no_graph():
    ring = [[[0, 0], [1, 0], [1, 1], [0, 0]]]
    feature = {"type": "Feature", "id": "a", "geometry": {"type": "Polygon", "coordinates": ring}, "properties": {}}
    sentence = r"'town' holds outlines, not neighbours; expected \{region: \[its neighbours\]\}.*build_contiguity"
    for outlines in ({"type": "FeatureCollection", "features": [feature]}, feature, feature["geometry"]):
        with pytest.raises(ValueError, match=sentence):
            towns(outlines)


def test_a_list_of_tuples_is_an_edge_list():
    path = np.diag(np.ones(2), 1) + np.diag(np.ones(2), -1)
    np.testing.assert_array_equal(gmrf.as_adjacency([(0, 1), (1, 2)], n=3).toarray(), path)
    np.testing.assert_array_equal(gmrf.as_adjacency([(0, 1), (1, 0)], n=2).toarray(), [[0, 1], [1, 0]])
    np.testing.assert_array_equal(gmrf.as_adjacency([[0, 1], [1, 0]]).toarray(), [[0, 1], [1, 0]])  # rows of a matrix
    with pytest.raises(ValueError, match=r"graph is a list of 2 edges; expected how many nodes .* Pass n"):
        gmrf.as_adjacency([(0, 1), (1, 2)])
    with pytest.raises(ValueError, match=r"Edges of a graph are pairs of integers; networkx"):
        gmrf.as_adjacency([("a", "b"), ("b", "c")], n=3)
    with pytest.raises(ValueError, match=r"'town' is a list of 2 edges; expected its nodes as well"):
        towns([(0, 1), (1, 2)])
    right = towns(LINE, TOWNS).elbo_
    assert towns([(0, 1), (1, 2), (2, 3)], TOWNS).elbo_ == pytest.approx(right, abs=1e-10)
    named = list(zip(TOWNS[:-1], TOWNS[1:], strict=True))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert towns(named).elbo_ == pytest.approx(right, abs=1e-10)
        island = towns(named[:2], TOWNS)
    alone = LINE.copy()
    alone[2, 3] = alone[3, 2] = 0.0
    assert island.elbo_ == pytest.approx(towns(alone, TOWNS).elbo_, abs=1e-10)
    with pytest.warns(UserWarning, match="names 'Wismra' only beside others"):
        towns([*named, ("Wismar", "Wismra")])

"""What a user of maps, processes and integrated fits tripped over."""

import numpy as np
import pandas as pd
import pytest

import fenchel


def squares(names, key=None):
    features = []
    for i, name in enumerate(names):
        ring = [[i, 0], [i + 1, 0], [i + 1, 1], [i, 1], [i, 0]]
        properties = {} if key is None else {key: name, "other": i}
        features.append(
            {"type": "Feature", "properties": properties, "geometry": {"type": "Polygon", "coordinates": [ring]}}
        )
    return {"type": "FeatureCollection", "features": features}


@pytest.fixture(scope="module")
def chain():
    names = [f"R{i}" for i in range(8)]
    graph = {a: [b for j, b in enumerate(names) if abs(i - j) == 1] for i, a in enumerate(names)}
    data = pd.DataFrame({"name": names * 3, "y": np.random.default_rng(0).poisson(4, 24)})
    return fenchel.fit("y ~ icar(name)", data, family="poisson", graphs={"name": graph}), names


def test_regions_go_by_any_property_that_names_them(chain):
    fit, names = chain
    shuffled = names[::-1]
    drawn = fit.plot_map("name", squares(shuffled, "NUTS")).collections[0].get_array()
    assert np.allclose(drawn, fit.effects["name"]["relative_risk"].loc[shuffled])


def test_outlines_that_name_no_region_are_refused(chain):
    fit, names = chain
    with pytest.raises(ValueError, match="holds the regions"):
        fit.plot_map("name", squares(names))


def test_integrated_fits_have_a_page_and_a_file(tmp_path):
    data = pd.DataFrame({"g": np.arange(40) % 5, "y": np.random.default_rng(1).poisson(3, 40)})
    fit = fenchel.fit("y ~ (1|g)", data, family="poisson", integrate=True)
    assert "integrated out" in fit.report(tmp_path / "page.html").read_text()
    fit.save(tmp_path / "model")
    again = fenchel.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(data), fit.predict(data))
    np.testing.assert_array_equal(again.hyperparameters, fit.hyperparameters)


def test_processes_are_drawn_as_curves_and_surfaces():
    rng = np.random.default_rng(2)
    data = pd.DataFrame({"a": rng.uniform(size=25), "b": rng.uniform(size=25)})
    data["y"] = np.sin(4 * data.a) + 0.2 * rng.normal(size=25)
    assert len(fenchel.fit("y ~ gp(a)", data).plot("gp(a)").lines[0].get_xdata()) == 25
    drawn = fenchel.fit("y ~ gp(a, b, isotropic=True)", data).plot("gp(a,b,isotropic=True)")
    first = np.ravel(np.asarray(drawn, dtype=object))[0]
    assert first.collections


def test_a_dict_names_its_regions_by_whole_numbers():
    graph = {i: [j for j in (i - 1, i + 1) if 0 <= j < 12] for i in range(12)}
    data = pd.DataFrame({"id": range(1, 12), "y": 5})
    fit = fenchel.fit("y ~ icar(id)", data, family="poisson", graphs={"id": graph})
    assert list(fit.effects["id"].index) == list(range(12))

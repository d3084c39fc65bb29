"""Pictures of every kind of term, predictive checks, maps, and pages in a browser."""

import shutil
import subprocess
from html.parser import HTMLParser
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from test_models_report import grid

import fenchel
from fenchel.checks import Refusal
from fenchel.models.report_page import estimates
from fenchel.plots import plot_bars, plot_density, plot_heat, plot_reliability, plot_rootogram, plot_survival
from fenchel.plots.base import short_name
from fenchel.plots.predictive_checks import kaplan_meier


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    out = pd.DataFrame({"r": np.repeat(np.arange(16), 6), "t": np.tile(np.arange(2000, 2006), 16)})
    for name in "xuv":
        out[name] = rng.random(96)
    out["a"], out["b"], out["g"] = (rng.choice(list(words), 96) for words in ("pqrst", "pqrst", "lm"))
    out["k"] = rng.poisson(np.exp(1 + 0.3 * out.x + 0.2 * (out.r % 4)))
    out["y"] = out.x + rng.normal(size=96)
    return out


def titles(axes):
    return [ax.get_title() for ax in axes]


def test_every_kind_of_term_has_its_picture(data):
    A = np.exp(-np.abs(np.subtract.outer(np.arange(16), np.arange(16))))  # noqa: F841 (in the formula)
    terms = "(x|a) + mm(a, b) + (1|gr(r, cov=A)) + te(u, v, k=4) + interact(iid(r), rw1(t)) + s(x, by=g) + ar1(t, by=g)"
    fit = fenchel.fit(f"y ~ {terms.replace('iid(r)', 'icar(r)')}", data, graphs={"r": grid()})
    slopes, curves, copies = fit.plot("(x|a)"), fit.plot("s(x, by=g)"), fit.plot("ar1(t, by=g)")
    assert titles(slopes) == ["intercept", "x"]
    assert [t.get_text() for t in slopes[0].get_yticklabels()] == list("pqrst")
    assert titles(curves) == titles(copies) == ["l", "m"]
    assert curves[0].get_xlabel() == "x"
    assert copies[0].get_xlabel() == "t"
    frame = fit.effects["s(x, by=g)"]
    assert np.allclose(curves[1].lines[0].get_ydata(), frame.loc["m", "mean"])
    surface = fit.plot("te(u, v, k=4)")
    assert (surface.get_xlabel(), surface.get_ylabel()) == ("u", "v")
    heat = fit.plot("interact(icar(r), rw1(t))")
    effect = fit.effects["interact(icar(r), rw1(t))"]["mean"]
    assert np.array_equal(heat.images[0].get_array(), effect.to_numpy().reshape(16, 6))
    assert len(fit.plot("mm(a, b)").get_yticklabels()) == 5
    assert len(fit.plot("(1|gr(r, cov=A))").get_yticklabels()) == 16
    given = np.ravel(slopes[0].figure.axes)
    assert fit.plot("(x|a)", ax=given)[0] is given[0]
    with pytest.raises(Refusal, match="plot: 1 Axes for 2 panels"):
        fit.plot("(x|a)", ax=surface)


def test_curves_of_very_many_groups_are_a_grid(data):
    fit = fenchel.fit("y ~ rw1(t, by=r)", data)
    assert fit.plot("rw1(t, by=r)").images[0].get_array().shape == (16, 6)
    by = fenchel.fit("y ~ g + te(u, v, k=4, by=g)", data)
    assert titles(by.plot("te(u,v,k=4,by=g)")) == ["l", "m"]


def test_many_groups_of_numbers_are_not_ratios(data):
    rng = np.random.default_rng(1)
    many = pd.DataFrame({"g": np.repeat(np.arange(60), 3), "x": rng.normal(size=180)})
    many["y"] = 100 * rng.normal(size=60)[many.g] + rng.normal(size=180)
    fit = fenchel.fit("y ~ (x|g)", many)
    assert [ax.get_yscale() for ax in fit.plot("(x|g)")] == ["linear", "linear"]
    many["k"] = rng.poisson(3.0, 180)
    assert fenchel.fit("k ~ (1|g)", many, "poisson").plot("g").get_yscale() == "log"


# -- maps ---------------------------------------------------------------------------------------------------
def test_maps_of_products_and_of_some_regions(data):
    fit = fenchel.fit("k ~ interact(icar(r), rw1(t))", data, "poisson", graphs={"r": grid()})
    maps = fit.plot_map("interact(icar(r), rw1(t))", grid())
    assert titles(maps) == [str(t) for t in range(2000, 2006)]
    ratios = fit.effects["interact(icar(r), rw1(t))"]["relative_risk"]
    assert np.array_equal(np.sort(maps[1].collections[0].get_array()), np.sort(ratios.xs(2001, level=1)))
    fewer = fenchel.fit("k ~ (1|r)", data[data.r < 10], "poisson")
    colours = fewer.plot_map("r", grid()).collections[0].get_array()
    assert int(np.ma.getmaskarray(colours).sum()) == 6
    with pytest.raises(Refusal, match="column = 'rr'; expected one of mean, sd"):
        fewer.plot_map("r", grid(), column="rr")


def test_a_property_may_name_the_regions(data):
    named = data.assign(name=[f"d{k}" for k in data.r])
    fit = fenchel.fit("k ~ (1|name)", named, "poisson")
    colours = fit.plot_map("name", grid()).collections[0].get_array()
    effect = fit.effects["name"]["relative_risk"]
    assert np.array_equal(colours, [effect[f"d{k}"] for k in range(16)])


def test_frames_of_geopandas(data):
    geopandas = pytest.importorskip("geopandas")
    frame = geopandas.GeoDataFrame.from_features(grid()["features"])
    frame["r"] = np.arange(16)
    fit = fenchel.fit("k ~ icar(r)", data, "poisson", graphs={"r": frame})
    effect = fit.effects["r"]["relative_risk"].to_numpy()
    shuffled = frame.sample(frac=1.0, random_state=0)
    for geodata, order in (
        (frame, np.arange(16)),
        (frame.geometry, np.arange(16)),
        (shuffled, shuffled.index),
        (shuffled.reset_index(drop=True).set_axis([f"row {k}" for k in range(16)]), shuffled.index),
        (shuffled.set_index("r").geometry, shuffled.index),
    ):
        assert np.array_equal(fit.plot_map("r", geodata).collections[0].get_array(), effect[np.asarray(order)])
    assert frame.crs is None


# -- predictive checks --------------------------------------------------------------------------------------
def test_checks_suit_their_response(data):
    rng = np.random.default_rng(2)
    more = data.assign(
        yes=np.where(rng.random(96) < data.x, "yes", "no"),
        n=7,
        hits=rng.binomial(7, data.x),
        level=pd.Categorical(rng.choice(["a", "b", "c"], 96), ordered=True),
        time=rng.exponential(1.0, 96) + 0.01,
        died=rng.integers(0, 2, 96),
    )
    more.loc[3, "k"] = np.nan
    for formula, family, ylabel, kinds in (
        ("k ~ x", "poisson", "rows (square-root scale)", ("rootogram", "density")),
        ("y ~ x", "gaussian", "density", ("density",)),
        ("yes ~ x", "bernoulli", "share of yes = yes", ("reliability", "bars")),
        ("hits | trials(n) ~ x", "binomial", "share of successes", ("reliability", "rootogram")),
        ("level ~ x", "ordinal", "rows", ("bars",)),
        ("cens(time, died) ~ x", "weibull", "share that lasts longer", ("survival", "density")),
        ("time ~ x", "gamma", "density", ("density",)),
    ):
        fit = fenchel.fit(formula, more, family)
        assert fit.plot_check().get_ylabel() == ylabel
        for kind in kinds:
            assert fit.plot_check(kind) is not None
    with pytest.raises(Refusal, match="kind = 'bars' of a gamma response; expected one of 'density'"):
        fit.plot_check("bars")


def test_the_data_of_a_check_are_counted():
    y, made = np.array([0, 0, 0, 0, 2, 3]), np.array([[0, 0, 1, 1, 2, 3], [0, 0, 0, 1, 2, 3]])
    ax = plot_rootogram(y, made)
    assert [round(p.get_height() ** 2, 6) for p in ax.patches] == [4, 0, 1, 1]
    assert np.allclose(np.asarray(ax.lines[0].get_ydata()) ** 2, [2.5, 1.5, 1, 1])
    ax = plot_bars(y, made, [0, 2, 3], ["none", "two", "three"])
    assert [p.get_height() for p in ax.patches] == [4, 1, 1]
    ax = plot_reliability([0.1, 0.1, 0.8, 0.8], [0, 1, 3, 4], [2, 2, 4, 4], bins=2, made=[[0, 0, 4, 4], [0, 0, 4, 4]])
    x, share = ax.lines[-1].get_data()
    assert np.allclose(x, [0.1, 0.8])
    assert np.allclose(share, [1 / 4, 7 / 8])
    for call, word in (
        (lambda: plot_rootogram([1, 2], [[1]]), "y \\(2,\\) and made \\(1, 1\\)"),
        (lambda: plot_density([1, np.nan], [[1, 2]]), "a value is not finite"),
        (lambda: plot_reliability([2.0], [1]), "outside of 0 and 1"),
        (lambda: plot_heat([1], [2], [[1, 2]]), "values \\(1, 2\\) on 1 rows"),
    ):
        with pytest.raises(Refusal, match=word):
            call()


def test_kaplan_meier_by_hand():
    time, event = np.array([6, 6, 6, 6, 7, 9, 10, 10]), np.array([1, 1, 1, 0, 1, 0, 1, 0], dtype=bool)
    steps, share, _, _ = kaplan_meier(time, event)
    assert steps.tolist() == [6, 7, 9, 10]
    assert np.allclose(share, [5 / 8, 5 / 8 * 3 / 4, 5 / 8 * 3 / 4, 5 / 8 * 3 / 4 / 2])
    ax = plot_survival(time, event, np.full((3, 8), 8.0))
    band = ax.collections[0].get_paths()[0].vertices
    assert band[:, 1].min() == 0.0
    assert band[:, 1].max() == 1.0


def test_densities_integrate_to_one():
    rng = np.random.default_rng(0)
    for positive, y in ((False, rng.normal(3.0, 2.0, 500)), (True, rng.gamma(2.0, 1.0, 500))):
        ax = plot_density(y, np.tile(y, (3, 1)), positive=positive)
        x, curve = ax.lines[-1].get_data()
        assert np.trapezoid(curve, x) == pytest.approx(1.0, abs=0.01)
        assert curve[np.argmin(np.abs(x - np.median(y)))] == pytest.approx(
            ((np.abs(y - np.median(y)) < 0.25).mean()) / 0.5, rel=0.35
        )


# -- pages --------------------------------------------------------------------------------------------------
class Balanced(HTMLParser):
    """Tags that are opened and not closed, in order."""

    def __init__(self):
        super().__init__()
        self.open, self.wrong, self.ids = [], [], []

    def handle_starttag(self, tag, attrs):
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in ("meta", "img", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)


@pytest.fixture(scope="module")
def pages(data, tmp_path_factory):
    where = tmp_path_factory.mktemp("pages")
    odd = data.assign(**{"a<b": data.a})
    odd.loc[4, "x"] = np.nan
    first = fenchel.fit("k ~ x + icar(r) + (x|`a<b`)", odd, "poisson", graphs={"r": grid()})
    second = fenchel.fit("y ~ s(x) + te(u, v, k=4) + rw1(t)", data)
    return [first.report(where / "map.html", {"r": grid()}), second.report(where / "smooth.html")]


def test_pages_are_well_formed(pages):
    for page in pages:
        parser = Balanced()
        parser.feed(page.read_text(encoding="utf-8"))
        assert not parser.open
        assert not parser.wrong
        assert len(set(parser.ids)) == len(parser.ids)
    text = pages[0].read_text(encoding="utf-8")
    assert "dropped: 1 row in which a covariate is missing (&#x27;x&#x27; in 1)" in text
    assert text.index("converged: gap") < text.index("Coefficients</h2>") < text.index("Hyperparameters</h2>")


def test_a_term_that_is_not_shown_leaves_the_page_whole(data, tmp_path):
    class Hidden(fenchel.terms.IID):
        """A term of one's own without a table."""

        def shown(self):
            return None

    fit = fenchel.fit("y ~ x", data, terms=[Hidden("a")])
    assert "does not say where it is shown" in fit.report(tmp_path / "page.html").read_text(encoding="utf-8")


@pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium on PATH")
def test_pages_open_in_a_browser_without_errors(pages, tmp_path):
    for page in pages:
        command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}"]
        command += ["--enable-logging=stderr", "--v=0", "--dump-dom", page.as_uri()]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        assert "CONSOLE" not in ran.stderr
        assert ran.stdout.count("<img") == page.read_text(encoding="utf-8").count("<img")
        assert "Does the model make such data?" in ran.stdout


def test_tables_have_the_digits_that_sds_leave():
    frame = pd.DataFrame({"mean": [11.2004, 2e-9, 0.0], "sd": [0.9761, 1e-9, 0.0]}, index=["days", 0.123456789, 2])
    frame["lower"], frame["upper"], frame["p_above_0"] = frame["mean"] - 2 * frame.sd, frame["mean"] + 2, 0.99999
    rows = estimates(frame, "here", None).rows
    assert rows[0] == ["days", "11.20", "0.98", "9.25 to 13.20", "> 0.999"]
    assert rows[1][:3] == ["0.1235", "2e-09", "1e-09"]
    assert rows[2][1:3] == ["0.000", "0.000"]
    assert short_name(("a", 2.0)) == "a, 2"
    assert short_name(pd.Timestamp("2020-03-01")) == "2020-03-01"


def test_a_column_of_the_fixed_part_is_drawn_with_the_others_typical():
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"x": rng.normal(size=60), "f": rng.choice(list("abc"), 60), "g": rng.choice(list("uvw"), 60)})
    data["y"] = rng.poisson(np.exp(0.5 * data.x))
    fit = fenchel.fit("y ~ x * f + (1|g)", data, "poisson")
    ax = fit.plot("f")
    assert [text.get_text() for text in ax.get_yticklabels()] == ["a", "b", "c"]
    line = fit.plot("x").get_lines()[-1]
    rows = pd.DataFrame({"x": line.get_xdata(), "f": data.f.mode()[0]})
    np.testing.assert_allclose(line.get_ydata(), fit.predict(rows, without="groups"), rtol=1e-10)


def test_a_column_of_the_fixed_part_is_drawn_for_one_trial_at_exposure_one():
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"x": rng.normal(size=60), "n": rng.integers(2, 9, 60), "time": rng.uniform(1.0, 3.0, 60)})
    data["k"] = rng.binomial(data.n, 0.4)
    data["y"] = rng.poisson(data.time)
    of_trials = fenchel.fit("k | trials(n) ~ x", data, "binomial", accuracy="fast")
    of_time = fenchel.fit("y ~ x", data, "poisson", exposure="time", accuracy="fast")
    for fit, own, label in ((of_trials, "trials", "expected share of k"), (of_time, "exposure", "expected y")):
        ax = fit.plot("x")
        line = ax.get_lines()[-1]
        rows = pd.DataFrame({"x": line.get_xdata()})
        np.testing.assert_allclose(line.get_ydata(), fit.predict(rows, **{own: 1.0}), rtol=1e-10)
        assert line.get_label() == label


def test_a_column_of_a_cox_model_is_drawn_as_log_hazard_ratios():
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"x": rng.normal(11.0, 1.0, 30), "t": rng.exponential(size=30), "e": 1.0})
    data["f"] = np.array(list("ab"))[np.arange(30) % 2]
    fit = fenchel.fit("cens(t, e) ~ x + f", data, family="cox")
    slope = fit.coefficients["mean"]
    line = fit.plot("x").lines[0]
    at = np.asarray(line.get_xdata(), dtype=float)
    np.testing.assert_allclose(line.get_ydata(), slope["x"] * (at - data.x.mean()), atol=1e-6)
    assert fit.plot("f").get_xlabel() == "log hazard above a typical row's"


def test_panels_know_their_figure():
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"x": rng.normal(size=60), "f": rng.choice(list("ab"), 60)})
    data["y"] = data.x + rng.normal(size=60)
    every = fenchel.fit("y ~ f + s(x, by=f)", data).plot("s(x, by=f)")
    assert every.shape == (2,)
    assert every.figure is every[0].figure


def test_a_surface_is_blank_where_no_row_is_near():
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"x": rng.uniform(size=80)})
    data["z"] = data.x + 0.05 * rng.normal(size=80)  # the corners have no rows
    data["y"] = data.x + rng.normal(size=80)
    ax = fenchel.fit("y ~ te(x, z)", data).plot("te(x, z)")
    drawn = np.concatenate([path.vertices for shown in ax.collections for path in shown.get_paths()])
    assert np.abs(drawn[:, 0] - drawn[:, 1]).max() < 0.5


def test_a_field_has_colours_that_part_at_0_a_bar_of_its_height_and_a_title_that_fits():
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"x": rng.uniform(0, 10, 40), "z": rng.uniform(0, 3, 40)})
    data["y"] = np.sin(data.x) + 0.2 * rng.normal(size=40)
    fit = fenchel.fit("y ~ matern(x, z, edge=0.6, prior_range=[1, 0.05], prior_sd=[2, 0.05])", data)
    ax = fit.plot(fit.model.sum.effects[0].name)
    figure = ax.figure
    FigureCanvasAgg(figure).draw()  # lays out, as the canvas of a figure without pyplot does not
    assert ax.get_title() == "matern(x,z)"
    (filled,) = (each for each in ax.collections if each.get_array() is not None and each.get_cmap().name == "RdBu_r")
    levels = filled.norm.boundaries
    assert levels[0] == pytest.approx(-levels[-1], rel=0.02)
    (bar,) = (child for child in ax.child_axes)
    assert bar.get_window_extent().height == pytest.approx(ax.get_window_extent().height, rel=1e-6)
    edge = ax.title.get_window_extent()
    assert figure.bbox.x0 <= edge.x0 < edge.x1 <= figure.bbox.x1


def drawn_sizes(ax):
    """Width and height in inches of the figure and of the Axes, once drawn."""
    figure = ax.figure
    FigureCanvasAgg(figure).draw()
    box = ax.get_window_extent()
    return figure.get_size_inches(), (box.width / figure.dpi, box.height / figure.dpi)


def test_a_field_over_a_wide_window_fills_its_figure_and_its_bar_can_be_read():
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"x": rng.uniform(0, 100, 40), "z": rng.uniform(0, 10, 40)})
    data["y"] = np.sin(data.x / 10) + 0.2 * rng.normal(size=40)
    ax = fenchel.fit("y ~ gp(x, z, isotropic=True)", data).plot("gp(x,z,isotropic=True)")
    size, (_, high) = drawn_sizes(ax)
    assert size[1] < 2 * high + 2.8  # two maps below one another, and no more than titles and labels about them
    (bar,) = ax.child_axes
    boxes = [label.get_window_extent() for label in bar.get_yticklabels() if label.get_text()]
    assert len(boxes) >= 3
    assert all(below.y1 <= above.y0 for below, above in pairwise(boxes))


@pytest.mark.parametrize(("wide", "high"), [(12, 2), (2, 6), (4, 4)])
def test_a_map_fills_its_figure_and_ratios_near_1_have_numbers(wide, high):
    corners = np.array([[0, 0], [1, 0], [1, 1], [0, 1]])
    cells = [[corners + np.array([i, j])] for i in range(wide) for j in range(high)]
    ax = fenchel.plots.plot_map(cells, np.linspace(0.95, 1.08, wide * high), ratio=True, title="a title")
    size, _ = drawn_sizes(ax)
    drawn = ax.transData.transform([[0, 0], [wide, high]])
    across, up = (drawn[1] - drawn[0]) / ax.figure.dpi
    assert size[1] - up < 1.6  # the title and the bar
    assert size[0] - across < 1.6
    shown = next(other for other in ax.figure.axes if other is not ax)
    assert len([label for label in shown.get_xticklabels() if label.get_text()]) >= 3


def test_a_picture_of_nothing_names_what_there_is():
    data = pd.DataFrame({"x": np.arange(12.0), "f": list("abc") * 4, "g": np.arange(12) % 4, "y": np.arange(12) % 5})
    fit = fenchel.fit("y ~ x + f + (1|g)", data, "poisson")
    with pytest.raises(ValueError, match=r"no column or term 'q'; expected one of \['x', 'f', '\(1\|g\)'\]"):
        fit.plot("q")


def test_a_map_of_both_signs_has_0_in_the_middle():
    square = np.array([[0, 0], [1, 0], [1, 1], [0, 1]])
    ax = fenchel.plots.plot_map([[square], [square + np.array([1, 0])]], [-0.2, 0.5])
    assert ax.collections[0].get_cmap().name == "RdBu_r"
    assert ax.collections[0].get_clim() == (-0.5, 0.5)

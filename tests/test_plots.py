"""Pictures of experiments show what they are given: contours, races, paths, forests."""

import numpy as np
import pytest
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

import fenchel.plots
from fenchel.plots import plot_contours, plot_forest, plot_path, plot_race

X, Y = np.linspace(-1, 3, 9), np.linspace(0, 2, 5)
BOWL = (X[None, :] - 1.0) ** 2 + 2 * (Y[:, None] - 0.5) ** 2
STEPS = np.arange(6)
FAST = ("fast", 0.01 * (1 + STEPS), -10.0 - 10.0 ** (3.0 - STEPS), STEPS)
SLOW = ("slow", 1.0 * (1 + STEPS), -10.0 - 10.0 ** (3.0 - STEPS), STEPS)


def save(ax, tmp_path):
    for kind in ("png", "svg"):
        ax.get_figure(root=True).savefig(tmp_path / f"figure.{kind}")


def stars(ax):
    return [tuple(line.get_xydata()[0]) for line in ax.lines if line.get_marker() == "*"]


def test_every_picture_is_at_the_door():
    assert all(callable(getattr(fenchel.plots, name)) for name in fenchel.plots.__all__)


@pytest.mark.parametrize(("sign", "star"), [(1, "min"), (1, True), (-1, "max")])
def test_contours_put_the_star_at_the_optimum(tmp_path, sign, star):
    ax = plot_contours(X, Y, sign * BOWL, star=star, xlabel="a", ylabel="b", label="c (nats)", title="t")
    assert stars(ax) == [(1.0, 0.5)]
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_title()) == ("a", "b", "t")
    assert "c (nats)" in [other.get_ylabel() for other in ax.child_axes]
    save(ax, tmp_path)


def test_contours_mark_a_second_point_on_log_axes(tmp_path):
    holes = BOWL.copy()
    holes[0, 0] = np.nan
    ax = plot_contours(
        np.exp(X),
        np.exp(Y),
        holes,
        star=(2.0, 3.0),
        star_label="ours",
        mark=(5.0, 1.5, "theirs"),
        log_x=True,
        log_y=True,
    )
    assert stars(ax) == [(2.0, 3.0)]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["ours", "theirs"]
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    save(ax, tmp_path)


def test_contour_levels_hold_every_value():
    for values in (BOWL, -BOWL, 1e-3 * BOWL, 300 + 1e4 * BOWL, np.full_like(BOWL, 2.0)):
        ax = plot_contours(X, Y, values, star=False)
        assert stars(ax) == []
        levels = ax.collections[0].norm.boundaries
        assert (np.diff(levels) > 0).all()
        assert levels[0] <= values.min()
        assert levels[-1] >= values.max()


def test_race_draws_distances_with_markers_where_asked(tmp_path):
    ax = plot_race([FAST, SLOW], -10.0, markers=[1, 3], upper=[("fast", FAST[1], -10.0 + 0.1**STEPS, STEPS)])
    fast, slow, above = ax.lines[:3]
    np.testing.assert_allclose(fast.get_ydata(), 10.0 ** (3.0 - STEPS), rtol=1e-6)
    assert fast.get_markevery() == [1, 3]
    assert fast.get_color() != slow.get_color()
    assert fast.get_marker() != slow.get_marker()
    assert above.get_color() == fast.get_color()
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["fast", "slow"]
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    assert "seconds" in ax.get_xlabel()
    save(ax, tmp_path)


def test_race_stops_at_the_floor_and_shows_the_objective_itself(tmp_path):
    done = ("done", [0.0, 0.1, 0.2], [-np.inf, -11.0, -10.0], [0, 1, 2])
    (line, *_) = plot_race([done], -10.0).lines
    np.testing.assert_allclose(line.get_xydata(), [[0.1, 1.0], [0.2, 1e-4]])
    own = Figure().subplots()
    assert plot_race([done], ax=own, targets=()) is own
    np.testing.assert_allclose(own.lines[0].get_ydata(), [-11.0, -10.0])
    assert own.get_yscale() == "linear"
    save(own, tmp_path)


def test_race_tells_many_methods_apart():
    ax = plot_race([(f"method {k}", *FAST[1:]) for k in range(11)], -10.0)
    looks = {(line.get_color(), line.get_linestyle(), line.get_marker()) for line in ax.lines[:11]}
    assert len(looks) == 11
    assert len({line.get_marker() for line in ax.lines[:11]}) == 11


def test_path_with_dates(tmp_path):
    t = np.arange("1981-10-02", "1983-10-02", dtype="datetime64[D]")
    mean = np.sin(np.arange(t.size) / 50)
    ax = plot_path(t, mean, mean - 1, mean + 1, points=mean, ylabel="volatility (percent a day)", xlabel="day")
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["data", "95 % interval", "posterior mean"]
    save(ax, tmp_path)
    assert plot_path([0, 1, 2], mean[:3], mean[:3], mean[:3]).lines[0].get_xdata().tolist() == [0, 1, 2]


def test_forest_of_one_and_of_several(tmp_path):
    mean = np.array([0.5, -0.2])
    ax = plot_forest(["a", "b"], mean, mean - 0.1, mean + 0.1, label="log odds")
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["a", "b"]
    (bars,) = (c for c in ax.collections if isinstance(c, LineCollection))
    np.testing.assert_allclose([s[:, 0] for s in bars.get_segments()], [[0.4, 0.6], [-0.3, -0.1]])
    both = np.stack([mean, 2 * mean])
    ax = plot_forest(["a", "b"], both, both - 0.1, both + 0.1, labels=["one", "two"], label="log odds")
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["one", "two"]
    save(ax, tmp_path)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: plot_contours(X, Y, BOWL.T), "values (9, 5) on 5 rows and 9 columns; expected (len(y), len(x))"),
        (lambda: plot_contours(X, Y, BOWL * np.nan), "no value is finite"),
        (lambda: plot_contours(X, Y, BOWL, star="best"), "star = 'best'"),
        (lambda: plot_race([], 0.0), "no lines"),
        (lambda: plot_race([("a", [1.0], [1.0, 2.0], [0])]), "1 seconds, 2 values, 1 iterations"),
        (lambda: plot_race([FAST], -10.0, upper=[SLOW]), "upper names 'slow'"),
        (lambda: plot_path([0, 1], [0.0], [0.0], [0.0]), "equal lengths"),
        (lambda: plot_forest(["a"], [0.0, 1.0], [0.0, 1.0], [0.0, 1.0]), "1 names meet mean (1, 2)"),
        (lambda: plot_forest(["a"], [0.0], [0.0], [0.0], labels=["x", "y"]), "2 labels meet 1 methods"),
    ],
)
def test_sentences(call, sentence):
    with pytest.raises(ValueError, match="plot_") as error:
        call()
    assert sentence in str(error.value)

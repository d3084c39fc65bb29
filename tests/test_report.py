"""Reports stand alone; pictures show what they are given."""

import re
import sys

import numpy as np
import pytest
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure

import fenchel
from fenchel.plots import plot_caterpillar, plot_grid, plot_map, plot_trace
from fenchel.report import Picture, Pre, Row, Section, Table, write_report

SQUARE = np.array([[0.0, 0.0], [4.0, 0.0], [4.0, 4.0], [0.0, 4.0]])
INSIDE = SQUARE / 4 + 1.5


def drawing() -> Figure:
    figure = Figure(figsize=(2, 2))
    figure.subplots().plot([0, 1])
    return figure


def test_report_is_one_escaped_file(tmp_path):
    picture = Picture(drawing(), 'a "line"', "caption & more")
    blocks = ["1 < 2 & 3", Pre("  x <- 1"), Table(["name", "<n>"], [["a", 1], ["b", 20]]), picture, Row([picture] * 2)]
    page = write_report(tmp_path / "new" / "r.html", "A <title>", [Section("One & two", blocks)], lead="lead")
    text = page.read_text(encoding="utf-8")
    assert "A &lt;title&gt;" in text
    assert "1 &lt; 2 &amp; 3" in text
    assert "  x &lt;- 1" in text
    assert "<h2>One &amp; two</h2>" in text
    assert text.count("data:image/png;base64,iVBOR") == 3
    assert text.count('alt="a &quot;line&quot;"') == 3
    assert '<meta name="viewport"' in text
    assert "prefers-color-scheme: dark" in text
    assert "://" not in text
    assert '<td class="right">20</td>' in text
    assert "<td>a</td>" in text


def test_contents_lead_to_every_chapter_and_section(tmp_path):
    same = Section("Race & traces", ["text"])
    parts = [Section("Opening", ["a"]), Section("Glass", sections=[same, same]), Section("Germany", sections=[same])]
    text = write_report(tmp_path / "r.html", "t", parts, contents=True).read_text(encoding="utf-8")
    links = re.findall(r'<a href="#([^"]*)">', text)
    anchors = re.findall(r'<section id="([^"]*)">', text)
    assert links == anchors
    assert len(set(anchors)) == len(anchors) == 6
    assert '<h2 class="chapter">Glass</h2>' in text
    assert text.count("<h3>Race &amp; traces</h3>") == 3
    assert "<nav" not in write_report(tmp_path / "r.html", "t", parts).read_text(encoding="utf-8")


def test_axes_are_pictures_too(tmp_path):
    page = write_report(tmp_path / "r.html", "t", [Section("s", [Picture(drawing().axes[0], "line")])])
    assert "image/png" in page.read_text(encoding="utf-8")


def test_report_refuses_what_it_cannot_show(tmp_path):
    with pytest.raises(ValueError, match="a block is a int; expected a string"):
        write_report(tmp_path / "r.html", "t", [Section("s", [3])])
    with pytest.raises(ValueError, match="row 1 of a table has 1 cells; expected 2"):
        write_report(tmp_path / "r.html", "t", [Section("s", [Table(["a", "b"], [[1, 2], [3]])])])


def test_table_text_aligns_numbers_right_and_keys_left():
    table = Table(["key", "p"], [["07316", "0.5"], ["10041", "> 0.999"]])
    assert table.text().splitlines() == ["key          p", "07316      0.5", "10041  > 0.999"]


def test_map_draws_enclaves_last():
    ax = plot_map([[INSIDE], [SQUARE]], [2.0, 0.5], ratio=True)
    (shapes,) = (c for c in ax.collections if isinstance(c, PathCollection))
    assert list(shapes.get_array()) == [0.5, 2.0]
    assert [len(path.vertices) for path in shapes.get_paths()] == [5, 5]
    low, high = shapes.norm.vmin, shapes.norm.vmax
    assert low * high == pytest.approx(1.0)  # 1 sits in the middle


def test_map_marks_values_beyond_the_limits_and_missing_ones(tmp_path):
    axes = Figure().subplots()
    assert plot_map([[SQUARE], [INSIDE]], [np.nan, 9.0], axes, limits=(0.0, 1.0), label="x") is axes
    axes.figure.savefig(tmp_path / "map.png")
    assert axes.collections[0].colorbar.extend == "max"


def test_map_refuses_a_wrong_number_of_values():
    with pytest.raises(ValueError, match="plot_map: 1 districts meet 2 values; expected one value a district"):
        plot_map([[SQUARE]], [1.0, 2.0])
    with pytest.raises(ValueError, match="numbers above 0 when ratio=True"):
        plot_map([[SQUARE]], [-1.0], ratio=True)


def test_trace_shows_both_bounds_and_the_gap(tmp_path):
    sol = fenchel.infer(fenchel.Poisson(), fenchel.DenseCovariance(np.eye(5) + 1.0), np.arange(5.0))
    figure = plot_trace(sol)
    top, bottom = figure.axes
    upper, lower = (line.get_ydata() for line in top.lines[:2])
    np.testing.assert_allclose(upper - lower, sol.trace["gap"], rtol=1e-6, atol=1e-9)
    gap = sol.trace["gap"]
    np.testing.assert_array_equal(bottom.lines[0].get_ydata(), gap[gap > 0])
    figure.savefig(tmp_path / "trace.png")
    own = Figure()
    assert plot_trace(sol, own.subplots(2, 1)) is own


def test_caterpillar_and_grid(tmp_path):
    ax = plot_caterpillar([1.2, 0.5, 2.0], [0.9, 0.3, 1.5], [1.6, 0.8, 2.7], label="risk")
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["below 1 (1)", "not told apart from 1 (1)", "above 1 (1)"]
    ax.figure.savefig(tmp_path / "caterpillar.png")
    ax = plot_grid([1, 2], [10, 20, 40], [[-5.0, -3.0, -4.0], [-2.0, -7.5, -300.0]])
    assert [text.get_text() for text in ax.texts] == ["-3.0", "-1.0", "-2.0", "0.0", "-5.5", "-298"]
    ax.figure.savefig(tmp_path / "grid.png")


def test_without_matplotlib_a_sentence_says_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r'pip install "fenchel\[plots\]"'):
        plot_map([[SQUARE]], [1.0])

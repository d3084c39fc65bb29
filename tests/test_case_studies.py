"""The case studies of the site: each runs as ``make docs`` runs it, and agrees with what R finds in the same data."""

import json
import re
import runpy
from pathlib import Path

import numpy as np
import pytest

from fenchel import gates

FOLDER = Path(__file__).parent.parent / "examples" / "case_studies"
PAGES = sorted(path.stem for path in FOLDER.glob("*.py"))


def run(page, monkeypatch):
    """The names of a page after it has run."""
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    monkeypatch.setattr(gates, "UNASKED_SECONDS", 20.0)  # pages show what a reader gets: the default
    monkeypatch.chdir(FOLDER)
    monkeypatch.setattr(plt, "show", lambda: None)
    try:
        return runpy.run_path(f"{page}.py")
    finally:
        plt.close("all")


@pytest.mark.parametrize("page", PAGES)
def test_a_case_study_runs(page, monkeypatch, capsys):
    names = run(page, monkeypatch)
    for value in names.values():
        assert np.all(getattr(value, "converged", True))  # a table of fits has a column of them
    printed = capsys.readouterr().out
    assert printed
    peers = json.loads((FOLDER / "peers.json").read_text())
    if page in peers and page != "satellite_temperatures":
        assert peers[page]["call"].partition("(")[0] in printed
        ours = names["table"] if page == "wheezing_children" else names["ours"]
        theirs = peers[page]["values"]
        assert set(ours) == set(theirs)
        for name in set(theirs) & {"smoke", "age", "male", "anger", "want", "diet1", "diet2", "diet3", "diet4"}:
            error = theirs.get(f"{name}_se", theirs.get("diet1_se", 0.06))
            assert ours[name] == pytest.approx(theirs[name], abs=0.25 * error), name


def test_every_page_has_what_a_case_study_has():
    for page in PAGES:
        text = (FOLDER / f"{page}.py").read_text(encoding="utf-8")
        assert text.count("# %%") >= 5, page
        for part in ("# The data", "# The model", "# Checks", "# The answer", "plt.show()", ".. math::"):
            assert part in text, (page, part)
        assert "says\n" in text, page
        assert " find" in text, page
    assert len(PAGES) >= 10


def test_the_files_of_the_case_studies_state_their_licence():
    rows = [line.split("|") for line in (FOLDER / "data" / "ORIGIN.md").read_text(encoding="utf-8").splitlines()]
    origins = {row[1].strip(" `"): row[3] for row in rows if len(row) == 5 and row[1].startswith(" `")}
    assert set(origins) == {path.name for path in (FOLDER / "data").iterdir()} - {"ORIGIN.md"}
    for name, origin in origins.items():
        assert re.search("GPL|public domain|Unlimited", origin), name

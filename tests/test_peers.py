"""``make peers``: the runner, the truths of its tasks and fenchel's answers, without any other package."""

import importlib.util
import json
import math
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import expit

PEERS = Path(__file__).parent.parent / "benchmarks" / "peers"


@pytest.fixture(scope="module")
def peers(tmp_path_factory):
    spec = importlib.util.spec_from_file_location("run", PEERS / "run.py")
    run = sys.modules["run"] = importlib.util.module_from_spec(spec)
    path = list(sys.path)
    spec.loader.exec_module(run)
    run.BUILD = tmp_path_factory.mktemp("build")
    yield run
    sys.path[:] = path
    del sys.modules["run"]


def answered(run, peer, name, folder):
    task = run.load(name, True, None)
    run.write(task, folder)
    return task, run.judged(peer, name, task, folder, 60)


def test_every_fit_of_every_peer_is_of_a_task_and_says_its_settings(peers):
    assert len(peers.peers()) >= 12
    for peer in peers.peers():
        text = peers.script(peer).read_text()
        fits = [name for name in peers.fits(peer) if name in peers.tasks()]
        assert fits
        assert set(fits) <= set(peers.fits(peers.OURS))
        for name in fits:
            said = f"{name} = " if peers.script(peer).suffix == ".R" else f'def {name}(data):\n    """'
            assert said in text


@pytest.mark.parametrize(("name", "most"), [("binary_process", 0.01), ("longitudinal_binary", 0.01)])
def test_the_default_call_is_judged_close_to_the_truth(peers, name, most, tmp_path):
    task, row = answered(peers, "fenchel", name, tmp_path)
    assert row.failed == ""
    assert math.hypot(*(row.figures[key] for key in task.compared if key in row.figures)) < most
    assert 0 < row.again[1] <= row.first[1]
    assert row.peak > 50


def test_tables_with_a_matrix_are_written_for_python_alone(peers, tmp_path):
    peers.write(peers.load("logistic_million", True, None), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["data.npz"]


def test_a_peer_does_not_outlive_an_interrupt(peers, monkeypatch):
    def interrupted(seconds):
        raise KeyboardInterrupt

    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
    monkeypatch.setattr(peers.time, "sleep", interrupted)
    with pytest.raises(KeyboardInterrupt):
        peers.waited(process, 60)
    assert process.returncode == -signal.SIGKILL


def test_a_peer_that_is_not_installed_and_one_that_fails_are_rows(peers, tmp_path, monkeypatch):
    task, absent = answered(peers, "statsmodels", "longitudinal_binary", tmp_path)
    assert "absent: its environment is not made (make peers PEERS=statsmodels)" in absent.failed
    broken = tmp_path / "fits.py"
    broken.write_text('PACKAGE = "numpy"\ndef longitudinal_binary(data):\n    raise ValueError("no such model")\n')
    monkeypatch.setattr(peers, "script", lambda peer: broken)
    failed = peers.judged("fenchel", "longitudinal_binary", task, tmp_path, 60)
    assert failed.failed == "ended with 1: ValueError: no such model"
    ours = peers.Row("fenchel", figures={"mean": 0.1, "sd": 0.1}, again=(1.0, 1.0))
    peers.compare(task, [ours, absent, failed])
    lines = peers.table([ours, absent, failed])
    assert [line.count("|") for line in lines] == [lines[0].count("|")] * 5
    assert peers.counts([absent, failed]) == ("0 / 0 / 0", "0 / 0 / 0")
    result = peers.Result(task.title, task.objective, [ours, absent, failed], 1.0)
    assert "| Longitudinal binary |  | 0 / 0 / 0 | 0 / 0 / 0 | statsmodels, fenchel |" in peers.page([result])


def test_accuracy_comes_first_and_what_one_side_lacks_is_left_out(peers):
    task = peers.Task("", "", {}, dict, ("mean", "sd"), 0.01)
    row = lambda cpu, **figures: peers.Row("", figures=figures, again=(cpu, cpu))
    rows = [
        row(1.0, mean=0.1, sd=0.5),
        row(2.0, mean=0.105),
        row(0.5, mean=0.1, sd=0.8),
        row(1.1, mean=0.1, sd=0.1),
    ]
    peers.compare(task, rows)
    assert [each.accuracy for each in rows[1:]] == ["tie", "win", "loss"]
    assert [each.time for each in rows[1:]] == ["win", "loss", "tie"]


def test_a_task_without_its_data_says_so(peers, tmp_path):
    assert "--data FOLDER" in peers.load("satellite", True, tmp_path)


def test_the_page_and_the_table_of_the_readme_are_of_the_kept_results(peers):
    """``python benchmarks/peers/run.py --pages`` writes them."""
    kept = peers.kept()
    assert peers.PAGE.read_text() == peers.page(kept)
    table = peers.README.read_text().partition(peers.MARKS[0])[2].partition(peers.MARKS[1])[0]
    assert table.strip("\n") == peers.short(kept)
    for result in kept:
        assert not result.skipped
        wins = [peers.counts(result.rows[1:])[k] for k in range(2)]
        assert f"| {result.title} | {' | '.join(wins)} |" in table
        assert f" | {' | '.join(wins)} | " in next(line for line in peers.summary(kept) if result.title in line)


def test_a_task_whose_data_are_missing_keeps_what_is_known_of_it(peers, tmp_path, monkeypatch):
    monkeypatch.setattr(peers, "RESULTS", tmp_path)
    peers.keep("smooths", peers.Result("Smooths", "", [peers.Row("fenchel")], 1.0))
    peers.keep("smooths", peers.Result("Smooths", "", [], 0.0, "no data"))
    peers.keep("satellite", peers.Result("Satellite", "", [], 0.0, "no data"))
    skipped = {result.title: result.skipped for result in peers.kept()}
    assert skipped["Smooths"] == ""
    assert skipped["Satellite"] == "no data"
    assert "no complete run yet" in skipped["Large process"]


def test_the_kept_maximum_of_the_binary_groups_is_stationary(peers):
    """By another quadrature, Gauss and Hermite's of 80 points: along x, the treatment and the sd of the groups."""
    task = peers.load("longitudinal_binary", True, None)
    import _random_intercepts as truth

    kept = json.loads(truth.STORE.read_text())["sim-binary"]["maximum"]
    train = task.tables["train"]

    nodes, weights = np.polynomial.hermite_e.hermegauss(80)

    def log_p(b, sd, intercept):
        eta = intercept + b[0] * train["x"] + b[1] * train["treated"]
        sign = 2 * train["y"] - 1
        rows = np.log(expit(sign[:, None] * (eta[:, None] + sd * nodes)))
        return sum(math.log(np.exp(rows[train["g"] == g].sum(axis=0)) @ weights) for g in np.unique(train["g"]))

    b, sd = np.array(kept["mean"]), kept["group"]
    intercept = minimize_scalar(lambda t: -log_p(b, sd, t), bounds=(-3, 3), method="bounded").x
    top, h = log_p(b, sd, intercept), 0.05
    for k in range(2):
        step = h * kept["sd"][k] * np.eye(2)[k]
        up, down = log_p(b + step, sd, intercept), log_p(b - step, sd, intercept)
        assert abs(up - down) / (2 * top - up - down) * h / 2 < 2e-3  # to the top, in standard errors
    step = h * kept["group_sd"]
    up, down = log_p(b, sd + step, intercept), log_p(b, sd - step, intercept)
    assert abs(up - down) / (2 * top - up - down) * h / 2 < 2e-3

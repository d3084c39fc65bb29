"""Tasks side by side: in processes, threads or on a Dask cluster, the same to the last bit, and repeated when lost."""

import functools
import os
import threading
import time

import numpy as np
import pandas as pd
import pytest
from joblib import parallel_config

import fenchel
from fenchel import tasks
from fenchel.criticism import k_fold, leave_group_out
from fenchel.hyperparameters import Normal, WeightVariances, grid, independent, learn
from fenchel.hyperparameters.integration import integrate
from fenchel.likelihoods import Poisson
from fenchel.linalg.machine import libraries
from fenchel.priors import DenseCovariance
from fenchel.tasks import Stopped, run_tasks

distributed = pytest.importorskip("distributed")
quiet = pytest.mark.filterwarnings("ignore")  # of dask, about its own machines


def cluster_of(n):
    return distributed.LocalCluster(
        n_workers=n, threads_per_worker=1, processes=True, dashboard_address=":0", silence_logs=50
    )


@pytest.fixture(scope="module")
def client():
    with cluster_of(2) as cluster, distributed.Client(cluster) as found:
        yield found


def added(shared, item):
    return shared + item


def slow(shared, item):
    time.sleep(0.05)
    return shared + item


def threads_of(shared, item):
    time.sleep(0.02)
    return max(library["num_threads"] for library in libraries().info())


def fragile(folder, item):
    """Takes its process along, the first time."""
    if item == 3 and not os.path.exists(os.path.join(folder, "died")):
        with open(os.path.join(folder, "died"), "w"):
            os._exit(1)
    return item**2


def deadly(shared, item):
    os._exit(1)


def refused(shared, item):
    raise ValueError(f"task {item}")


def where(shared, item):
    return id(shared), os.getpid()


# -- the seam --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("backend", ["threading", "loky", "multiprocessing"])
def test_results_are_in_order_with_every_backend_of_joblib(backend):
    heard = []
    with parallel_config(backend=backend, n_jobs=2):
        assert not tasks.alone(None, 2)
        found = run_tasks(slow, range(5), 10, where="t", hear=lambda place, result: heard.append((place, result)))
    assert found == [10, 11, 12, 13, 14]
    assert sorted(heard) == list(enumerate(found))
    assert tasks.alone(None, 2)
    assert tasks.alone(2, 1)


@quiet
def test_a_cluster_gives_the_same(client):
    heard = []
    found = run_tasks(added, range(5), 10, where="t", n_jobs=client, hear=lambda place, _: heard.append(place))
    assert found == [10, 11, 12, 13, 14]
    assert sorted(heard) == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="task 0"):
        run_tasks(refused, [0], None, where="t", n_jobs=client)
    with pytest.raises(ValueError, match="task "):
        run_tasks(refused, [0, 1], None, where="t", n_jobs=client)


def test_tasks_beside_others_hold_blas_to_one_thread():
    counts = [library["num_threads"] for library in libraries().info()]
    with parallel_config(backend="threading", n_jobs=2):
        assert run_tasks(threads_of, range(4), None, where="t") == [1] * 4
    assert [library["num_threads"] for library in libraries().info()] == counts


@quiet
def test_threads_of_a_worker_have_a_copy_of_what_is_shared_each(client):
    with (
        distributed.LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=":0") as cluster,
        distributed.Client(cluster) as threads,
    ):
        shared = ["a list"]
        found = run_tasks(where, range(2), shared, where="t", n_jobs=threads)
    assert all(place != id(shared) for place, _ in found)


@quiet
def test_a_lost_process_is_repeated(client, tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    assert run_tasks(fragile, range(6), str(one), where="t", n_jobs=client) == [0, 1, 4, 9, 16, 25]
    assert (one / "died").exists()
    assert run_tasks(fragile, range(6), str(two), where="t", n_jobs=2) == [0, 1, 4, 9, 16, 25]
    assert (two / "died").exists()


@quiet
def test_an_interrupt_keeps_what_finished(client):
    def stop(place, result):
        if place == 2:
            raise KeyboardInterrupt

    for n_jobs in (None, client):
        with pytest.raises(KeyboardInterrupt) as stopped:
            run_tasks(slow, range(8), 10, where="t", n_jobs=n_jobs, hear=stop)
        kept = stopped.value.finished
        assert kept[2] == 12
        assert len(kept) < 8
        assert all(value == 10 + place for place, value in kept.items())
        assert f"t: {len(kept)} of 8 tasks are finished" in stopped.value.__notes__[0]
    assert run_tasks(added, range(3), 1, where="t", n_jobs=client) == [1, 2, 3]  # nothing is left behind


@quiet
def test_a_scheduler_that_is_gone_is_a_sentence(tmp_path):
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=True, dashboard_address=":0", silence_logs=50
    ) as cluster:
        client = distributed.Client(cluster.scheduler_address, timeout=1)
        begun = threading.Event()

        def close():
            begun.wait()
            cluster.close()

        closing = threading.Thread(target=close)
        closing.start()
        with pytest.raises(
            Stopped, match=r"t: the Dask scheduler at \S+ does not answer. \d+ of 400 tasks are finished"
        ) as stopped:
            run_tasks(slow, range(400), 0, where="t", n_jobs=client, hear=lambda *_: begun.set())
        closing.join()
        assert 1 <= len(stopped.value.finished) < 400
        client.close(timeout=1)
    with pytest.raises(ValueError, match="t: the Dask client is closed; expected one that is connected"):
        run_tasks(added, range(2), 0, where="t", n_jobs=client)


@pytest.mark.parametrize("n_jobs", [0, True, 1.5, "all"])
def test_what_is_no_number_of_processes_is_refused(n_jobs):
    with pytest.raises(ValueError, match=f"t: n_jobs = {n_jobs}; expected a number of processes"):
        run_tasks(added, range(2), 0, where="t", n_jobs=n_jobs)


def test_a_cluster_without_a_client_is_refused(client):
    with pytest.raises(ValueError, match=r"n_jobs = a LocalCluster; .* Give Client\(cluster\)"):
        run_tasks(added, range(2), 0, where="t", n_jobs=client.cluster)
    with pytest.raises(ValueError, match=r"n_jobs = tcp://here:1; .* Give Client\(address\)"):
        run_tasks(added, range(2), 0, where="t", n_jobs="tcp://here:1")


def test_progress_is_drawn_when_asked_for(capsys):
    run_tasks(added, range(3), 0, where="adding", progress=True)
    assert "adding" in capsys.readouterr().err
    run_tasks(added, range(3), 0, where="adding")
    assert capsys.readouterr() == ("", "")


# -- what runs tasks -------------------------------------------------------------------------------------------
def small():
    family = WeightVariances(np.eye(8), log_prior=independent({0: Normal(0.0, 1.0)}))
    return Poisson(), family, np.array([2.0, 0, 4, 1, 9, 3, 2, 6])


def bits(value):
    return np.asarray(value, dtype=np.float64).tobytes()


def of_grid(n_jobs):
    found = grid(*small(), [np.linspace(-2.0, 2.0, 5)], n_jobs=n_jobs)
    return bits(found.elbo) + bits(found.elbo_upper) + bits(found.n_iter)


def of_restarts(n_jobs):
    found = learn(*small(), n_restarts=3, rng=0, n_jobs=n_jobs)
    counts = [found.n_evaluations, found.n_newton]
    return bits(found.theta) + bits([value for _, value in found.restarts]) + bits(counts)


def of_integration(n_jobs):
    found = integrate(*small(), n_jobs=n_jobs)
    return bits(found.log_evidence) + bits(found.mean) + bits(found.theta.interval())


def of_folds(n_jobs):
    found = k_fold(*small(), folds=4, n_jobs=n_jobs)
    return bits(found.log_density) + bits(found.mean) + bits(found.variance)


def of_groups(n_jobs):
    likelihood, _, y = small()
    x = np.linspace(0, 2, 8)
    prior = DenseCovariance(np.exp(-0.5 * (x[:, None] - x) ** 2) + 1e-3 * np.eye(8))
    sol = fenchel.infer(likelihood, prior, y)
    found = leave_group_out(sol, [0, 0, 1, 1, 2, 2, 3, 3], prior=prior, refit="all", joint=True, n_jobs=n_jobs)
    assert found.refitted.all()
    return bits(found.log_density) + bits(found.joint) + bits(found.variance)


def table():
    rng = np.random.default_rng(0)
    g = np.repeat(list("abcdefgh"), 5)
    x = rng.normal(size=40)
    y = rng.poisson(np.exp(0.5 * x + np.repeat(rng.normal(size=8), 5)))
    return pd.DataFrame({"g": g, "x": x, "y": y})


def of_models(n_jobs):
    models = {"x": "y ~ x + (1|g)", "no x": "y ~ 1 + (1|g)"}
    found = fenchel.compare({k: fenchel.fit(v, table(), "poisson") for k, v in models.items()}, n_jobs=n_jobs)
    return bits(found.drop(columns="converged"))


def of_calibration(n_jobs):
    model = fenchel.Model("y ~ x + (1|g)", table(), "poisson", fixed_sd=1.0)
    return bits(fenchel.calibrate(model, 20, method=None, n_jobs=n_jobs).u)


RUNS = [of_grid, of_restarts, of_integration, of_folds, of_groups, of_models, of_calibration]


@quiet
@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.__name__)
def test_whoever_runs_the_tasks_the_answer_is_the_same_to_the_last_bit(run, client):
    alone = run(None)
    assert run(client) == alone
    with parallel_config(backend="threading"):
        assert run(2) == alone
    with parallel_config(backend="loky", n_jobs=2):
        assert run(None) == alone


@quiet
def test_a_grid_of_a_cluster(client):
    found = grid(*small(), [np.linspace(-2.0, 2.0, 5)], drop=3.0, n_jobs=client)
    serial = grid(*small(), [np.linspace(-2.0, 2.0, 5)], drop=3.0)
    assert found.theta == serial.theta
    assert found.dropped.sum() <= serial.dropped.sum()


def test_an_interrupted_calibration_leaves_what_it_has(monkeypatch):
    from fenchel.models import calibrating

    model, plain, calls = fenchel.Model("y ~ x + (1|g)", table(), "poisson", fixed_sd=1.0), calibrating._one, []

    def until(*args):
        calls.append(args)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return plain(*args)

    monkeypatch.setattr(calibrating, "_one", until)
    with pytest.raises(KeyboardInterrupt) as stopped:
        fenchel.calibrate(model, 20, method=None)
    assert stopped.value.finished.u.shape[0] == 3


def test_a_generator_is_one_seed_for_all_tasks():
    one, two = (tasks.seed_of(np.random.default_rng(7)) for _ in range(2))
    assert one == two
    assert tasks.seed_of(5) == 5


@quiet
def test_a_task_that_ends_every_worker_is_told(client, monkeypatch):
    monkeypatch.setattr(tasks, "_ATTEMPTS", 1)
    with pytest.raises(Stopped, match=r"t: a process was killed and no task ends: .* memory. 0 of 2 tasks are finish"):
        run_tasks(deadly, range(2), None, where="t", n_jobs=2)
    monkeypatch.setattr(client.cluster.scheduler, "allowed_failures", 0)
    with pytest.raises(Stopped, match=r"t: a task ended every worker that ran it: .* memory. 0 of 2 tasks are finish"):
        run_tasks(deadly, range(2), None, where="t", n_jobs=client)


def test_processes_of_the_command_line(tmp_path, monkeypatch):
    from fenchel.models.command import FitCommand
    from fenchel.models.model import Model

    heard = {}

    @functools.wraps(Model.fit)  # with its signature
    def fit(self, **options):
        heard.update(options)
        raise KeyboardInterrupt

    monkeypatch.setattr(Model, "fit", fit)
    table().to_csv(tmp_path / "table.csv", index=False)
    given = {"formula": "y ~ x", "data": tmp_path / "table.csv", "family": "poisson", "n_restarts": 2, "n_jobs": 2}
    with pytest.raises(KeyboardInterrupt):
        FitCommand(given, tmp_path).run()
    assert heard["n_jobs"] == heard["n_restarts"] == 2

"""A real cluster of processes: a worker is killed in the middle of a pass, then the scheduler; the answer is the same.

The cluster lives in a process of its own, so that its scheduler can be killed. A second one is started at the same time
and takes over.
"""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

import fenchel
import fenchel.estimators.dask_rows as door
from fenchel.distributed import Interrupted
from fenchel.estimators import BayesianPoissonRegression, GaussianProcessPoissonRegressor

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")

N, D, PARTS = 2000, 4, 8
CLUSTER = """
import sys
from distributed import LocalCluster

if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0") as cluster:
        print(cluster.scheduler_address, flush=True)
        sys.stdin.read()
"""


READER = """
import os, signal, time
import numpy as np

N, D, PARTS = 2000, 4, 8


def read(path, i, victim, at, log):
    # the i-th partition; the reader that comes n-th kills ``victim`` first, or with "worker" itself
    with open(log, "ab", buffering=0) as file:  # one write at the end: no two readers have the same place
        file.write(b"%d\\n" % i)
        came = file.tell() // 2
    if victim is not None and came == at:
        os.kill(os.getpid() if victim == "worker" else victim, signal.SIGKILL)
        time.sleep(1.0)
    n = N // PARTS
    return np.load(path)[n * i : n * (i + 1)]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where a small module lies that workers import."""
    out = tmp_path_factory.mktemp("cluster")
    (out / "partition_reader.py").write_text(READER)
    return out


@pytest.fixture(scope="module")
def clusters(folder):
    """Two processes, each with a scheduler and two worker processes, and their addresses."""
    script = folder / "cluster.py"
    script.write_text(CLUSTER)
    command = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    command["env"] = os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
    started = [subprocess.Popen([sys.executable, str(script)], **command) for _ in range(2)]
    yield [(process, process.stdout.readline().strip()) for process in started]
    for process in started:
        process.stdin.close()
        process.wait(60)
        process.stdout.close()


@pytest.fixture
def rows(folder, tmp_path, monkeypatch):
    """X whose partitions read a file, and kill a process when they are read for the n-th time; and counts."""
    monkeypatch.setattr(door, "_FEWEST", 64)  # partitions do the work, in some passes
    monkeypatch.setattr(door, "_LARGEST", 64)
    monkeypatch.syspath_prepend(folder)
    from partition_reader import read

    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, D))
    np.save(tmp_path / "X.npy", X)

    def made(victim=None, at=0):
        log = tmp_path / f"{victim}.log"
        log.unlink(missing_ok=True)
        blocks = [dask.delayed(read)(str(tmp_path / "X.npy"), i, victim, at, str(log)) for i in range(PARTS)]
        return da.concatenate([da.from_delayed(b, (N // PARTS, D), dtype=float) for b in blocks])

    return made, rng.poisson(np.exp(X[:, 0]))


@pytest.mark.every_run
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # sockets of a scheduler that was killed
def test_workers_and_schedulers_may_die(clusters, rows, tmp_path):
    made, y = rows
    (first, address), (_, other) = clusters
    whole = BayesianPoissonRegression().fit(made(), y)
    passes = whole.solution_.n_passes
    assert passes > 4
    path = tmp_path / "fit"
    with dask.config.set({"distributed.comm.timeouts.connect": "5s"}):
        with distributed.Client(address, set_as_default=True):
            X = made("worker", 2 * PARTS + 3)
            found = BayesianPoissonRegression().fit(X, y)
            read = len((tmp_path / "worker.log").read_text().split())
            assert_same(found, whole)
            assert PARTS * passes < read <= PARTS * (passes + 1)  # what was lost was read again, and not the fit
            with pytest.raises(Interrupted, match=r"the scheduler cannot be reached .* The fit so far is in .*fit"):
                BayesianPoissonRegression().fit(made(first.pid, 3 * PARTS + 3), y, checkpoint=path)
        with distributed.Client(other, set_as_default=True):
            again = BayesianPoissonRegression().fit(made(), y, checkpoint=path)
    assert_same(again, whole)
    assert again.solution_.n_passes < passes


def with_counts(frame):
    """Counts and groups that the rows themselves decide."""
    return frame.assign(c=np.floor(np.exp(frame.x0)), g=np.floor(2 * frame.x1).astype(int))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_a_lost_worker_does_not_change_a_model(clusters, rows, tmp_path):
    dd = pytest.importorskip("dask.dataframe")
    made, _ = rows

    def model(*given):
        table = dd.from_dask_array(made(*given), columns=[f"x{d}" for d in range(D)]).map_partitions(with_counts)
        return fenchel.Model("c ~ x2 + (1|g)", table, "poisson").fit()

    whole = model()
    with distributed.Client(clusters[1][1], set_as_default=True):
        fit = model("worker", 3 * PARTS + 3)
        assert len((tmp_path / "worker.log").read_text().split()) > 3 * PARTS + 3
    assert abs(fit.elbo - whole.elbo) < 1e-10
    np.testing.assert_allclose(fit.theta, whole.theta, atol=1e-10)
    np.testing.assert_allclose(fit.coefficients, whole.coefficients, atol=1e-10)


def test_a_lost_worker_does_not_change_a_process(clusters, rows, tmp_path):
    """In the third pass, while theta is searched."""
    made, y = rows
    options = {"n_inducing": 10, "approximation": "inducing", "loss": 1.0}
    kernel = ConstantKernel(1.0) * RBF(2.0)

    def process(*given):
        return GaussianProcessPoissonRegressor(kernel, **options).fit(made(*given), y)

    whole = process()
    passes = whole.solution_.n_passes
    assert passes > 3
    with distributed.Client(clusters[1][1], set_as_default=True):
        found = process("worker", 2 * PARTS + 3)
        read = len((tmp_path / "worker.log").read_text().split())
    assert PARTS * passes < read <= PARTS * (passes + 1)
    assert found.solution_.n_passes == passes
    assert abs(found.elbo_ - whole.elbo_) < 1e-10 * abs(whole.elbo_)
    np.testing.assert_allclose(found.kernel_.theta, whole.kernel_.theta, rtol=0, atol=1e-10)
    at = np.random.default_rng(2).normal(size=(50, D))
    for a, b in zip(found.latent_mean_and_variance(at), whole.latent_mean_and_variance(at), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-10)


def assert_same(found, whole):
    assert found.converged_
    for name in ("coef_", "coef_std_", "intercept_", "theta_"):
        np.testing.assert_allclose(getattr(found, name), getattr(whole, name), rtol=0, atol=1e-10)
    assert abs(found.elbo_ - whole.elbo_) < 1e-10


def test_the_process_of_the_fit_may_die(rows, folder, tmp_path):
    """Killed in the middle of a pass, without a chance to tidy up."""
    made, y = rows
    np.save(tmp_path / "y.npy", y)
    path, log = tmp_path / "fit", tmp_path / "process.log"
    script = tmp_path / "fit.py"
    script.write_text(
        f"import sys; sys.path.insert(0, {str(folder)!r})\n"
        "import os, dask, dask.array as da, numpy as np\n"
        "from partition_reader import read, N, D, PARTS\n"
        "import fenchel.estimators.dask_rows as door; door._FEWEST = door._LARGEST = 64\n"
        "from fenchel.estimators import BayesianPoissonRegression\n"
        f"given = {str(tmp_path / 'X.npy')!r}\n"
        f"blocks = [dask.delayed(read)(given, i, os.getpid(), 4 * PARTS, {str(log)!r}) for i in range(PARTS)]\n"
        "X = da.concatenate([da.from_delayed(b, (N // PARTS, D), dtype=float) for b in blocks])\n"
        f"BayesianPoissonRegression().fit(X, np.load({str(tmp_path / 'y.npy')!r}), checkpoint={str(path)!r})\n"
    )
    ended = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    whole = BayesianPoissonRegression().fit(made(), y)
    again = BayesianPoissonRegression().fit(made(), y, checkpoint=path)
    assert_same(again, whole)
    assert again.solution_.n_passes < whole.solution_.n_passes

"""Files written beside their path: what killed writers left is swept, and devices and pipes stay what they are."""

import os
import subprocess
import sys

import pytest

import fenchel

pytestmark = pytest.mark.skipif(os.name == "nt", reason="no locks and no pipes")

WRITER = """
import os, sys, time
from pathlib import Path
from fenchel.files.atomic_write import replacing
with replacing(Path(sys.argv[1])) as file:
    file.write(b"half")
    file.flush()
    print("writing", flush=True)
    time.sleep(60)
"""


def test_what_a_killed_save_left_is_swept_and_what_is_being_written_is_not(tmp_path):
    target = tmp_path / "a.model"
    writers = []
    for _ in range(2):
        writers.append(subprocess.Popen([sys.executable, "-c", WRITER, str(target)], stdout=subprocess.PIPE, text=True))
        assert writers[-1].stdout.readline() == "writing\n"
    try:
        writers[0].kill()
        writers[0].wait()
        (tmp_path / ".b.model.abcdefgh.part").write_bytes(b"of another name")
        assert len(list(tmp_path.iterdir())) == 3
        fenchel.BayesianLogisticRegression().save(target)
        names = sorted(path.name for path in tmp_path.iterdir())
        assert names[1:] == [".b.model.abcdefgh.part", "a.model"]
        assert names[0].startswith(".a.model.")  # of the one at work
    finally:
        for writer in writers:
            writer.kill()
            writer.wait()
            writer.stdout.close()
    fenchel.BayesianLogisticRegression().save(target)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".b.model.abcdefgh.part", "a.model"]


def test_a_sweep_between_the_name_and_its_lock(tmp_path, monkeypatch):
    from fenchel.files import atomic_write

    lock, swept = atomic_write.fcntl.flock, []

    def late(handle, how):
        if not swept:
            swept.extend(tmp_path.iterdir())
            swept[0].unlink()
        lock(handle, how)

    monkeypatch.setattr(atomic_write.fcntl, "flock", late)
    with atomic_write.replacing(tmp_path / "a") as file:
        file.write(b"whole")
    assert swept
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"whole"]


def test_devices_pipes_and_long_names(tmp_path):
    model = fenchel.BayesianLogisticRegression()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="save: it is a device or a pipe; expected the name of a file"):
        model.save(pipe)
    with pytest.raises(OSError, match="load: it is a device or a pipe; expected the name of a file"):
        fenchel.load(pipe)  # and does not wait for a writer
    assert pipe.is_fifo()
    for name in ("n" * 255, "é" * 127):
        model.save(tmp_path / name)
        assert isinstance(fenchel.load(tmp_path / name), type(model))
    assert len(list(tmp_path.iterdir())) == 3


def test_files_of_others_and_pipelines_name_the_way(tmp_path):
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    pipeline = make_pipeline(StandardScaler(), fenchel.BayesianLogisticRegression())
    with pytest.raises(
        ValueError, match=r"save: the Pipeline cannot be saved: it is of sklearn.pipeline; .* skops.io.dump"
    ):
        fenchel.save(pipeline, tmp_path / "a")
    skops = pytest.importorskip("skops.io")
    skops.dump(pipeline, tmp_path / "a")
    with pytest.raises(ValueError, match=r"a is a file of skops'; .* skops.io.load"):
        fenchel.load(tmp_path / "a")

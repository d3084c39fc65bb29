"""Fitted things in files: the same answers to rounding, and a sentence for whatever is damaged or hostile."""

import json
import os
import pickle
import random
import subprocess
import sys
import time
import tracemalloc
import zipfile

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.gaussian_process import kernels

import fenchel
from fenchel.checks import Refusal
from fenchel.files import stored
from fenchel.files.archive import CONTENT
from fenchel.models.expressions import NotAllowed, read

RNG = np.random.default_rng(0)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    out = pd.DataFrame({"g": np.repeat([f"g{k}" for k in range(8)], 6), "t": np.tile(np.arange(6), 8)})
    for name in "xz":
        out[name] = rng.normal(size=48) + 5.0
    out["f"] = pd.Categorical(rng.choice(["low", "mid", "top"], 48), categories=["low", "mid", "top"], ordered=True)
    out["a"], out["b"] = rng.choice(list("pqr"), 48), rng.choice(list("pqr"), 48)
    out["month"] = pd.to_datetime("2020-01-01") + pd.to_timedelta(31 * out.t, "D")
    out["month"] = out.month.dt.to_period("M").dt.to_timestamp()
    out["n"], out["yes"] = 9, np.where(rng.random(48) < 0.5, "yes", "no")
    out["k"] = rng.poisson(np.exp(0.2 * (out.x - 5) + 1))
    out["y"] = 2.0 * out.x + rng.normal(size=48)
    out["time"], out["died"] = rng.exponential(1.0, 48) + 0.1, rng.integers(0, 2, 48)
    return out


def assert_same(fit, again, new):
    for one, other in (
        (fit.predict(interval=0.9), again.predict(interval=0.9)),
        (fit.predict(new, interval=0.9), again.predict(new, interval=0.9)),
        (fit.coefficients, again.coefficients),
        *((fit.effects[name], again.effects[name]) for name in fit.effects),
    ):
        # ratios are exponentials, and of an unknown coefficient beyond anything
        pd.testing.assert_frame_equal(one.clip(upper=1e6), other.clip(upper=1e6), rtol=1e-11, atol=1e-11)
    assert np.allclose(fit.sample(new, 4, 0), again.sample(new, 4, 0), rtol=1e-9, atol=1e-11, equal_nan=True)
    assert fit.summary() == again.summary()


@pytest.mark.parametrize(
    ("formula", "family"),
    [
        ("y ~ scale(x) + poly(z, 2) + bs(x, df=4) + C(a) + f:x + offset(np.log(z)) + (x|g)", "gaussian"),
        ("k ~ x*z + C(a, contr.sum) + s(x, k=5) + te(x, z, k=4) + rw1(t) + ar1(t, by=a)", "poisson"),
        ("k | trials(n) ~ np.exp(-x) + mm(a, b) + (1|g/a) + seasonal(t, 3)", "binomial"),
        ("f ~ x + (x||g)", "ordinal"),
        ("yes ~ x + rw2(month) + interact(icar(g, W), rw1(t)) + (1|gr(a, cov=A))", "bernoulli"),
        ("cens(time, died) ~ `x` + log(z) + leroux(g, W)", "weibull"),
        ("np.log(z) ~ . - time - died - k", "student-t"),
    ],
)
def test_models_answer_the_same(data, formula, family, tmp_path):
    names = [f"g{k}" for k in range(8)]
    W = pd.DataFrame(np.eye(8, k=1) + np.eye(8, k=-1), index=names, columns=names)
    A = pd.DataFrame(np.eye(3) + 0.5, index=list("pqr"), columns=list("pqr"))
    data = data.assign(k=np.minimum(data.k, 9)) if family == "binomial" else data
    data = data.drop(columns=["g", "month", "yes", "f"]) if "~ ." in formula else data
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.warn", lambda *a, **k: None)
        fit = fenchel.fit(formula, data, family, env={"W": W, "A": A})
    fit.save(tmp_path / "a.model")
    again = fenchel.load(tmp_path / "a.model")
    assert_same(fit, again, data.sample(20, random_state=1))


def test_frames_keep_their_index_and_missing_rows(data, tmp_path):
    odd = data.set_index(pd.MultiIndex.from_arrays([data.g, pd.period_range("2000-01", periods=48, freq="M")]))
    odd = odd.assign(when=pd.date_range("2020", periods=48, tz="Europe/Berlin"))
    odd.iloc[3, odd.columns.get_loc("x")], odd.iloc[5, odd.columns.get_loc("y")] = np.nan, np.nan
    fit = fenchel.fit("y ~ x + f", odd)
    fit.save(tmp_path / "a.model")
    again = fenchel.load(tmp_path / "a.model")
    assert again.predict().index.equals(fit.predict().index)
    assert_same(fit, again, odd.iloc[::-1])
    assert again.model.dropped == fit.model.dropped


def test_estimators_and_solutions(tmp_path):
    X = RNG.normal(size=(40, 3))
    y, k = X @ [1.0, 0.0, -1.0] + 0.3 * RNG.normal(size=40), RNG.poisson(2.0, 40)
    K = np.exp(-0.5 * np.subtract.outer(X[:, 0], X[:, 0]) ** 2) + 1e-6 * np.eye(40)
    frame = pd.DataFrame({"r": np.arange(40) % 5, "x": X[:, 0]})
    ring = np.roll(np.eye(5), 1, axis=0) + np.roll(np.eye(5), -1, axis=0)
    Q = sparse.eye_array(40, format="csc")
    for made, use in (
        (fenchel.BayesianLinearRegression().fit(X, y), lambda e: e.predict(X)),
        (fenchel.BayesianLogisticRegression().fit(X, np.digitize(y, [-1, 1])), lambda e: e.predict_proba(X)),
        (fenchel.GaussianProcessClassifier().fit(X, y > 0), lambda e: e.predict_proba(X + 0.1)),
        (
            fenchel.FormulaRegressor("k ~ x + icar(r)", "poisson", graphs={"r": ring}).fit(frame, k),
            lambda e: e.predict(frame),
        ),
        (fenchel.ProbabilisticPCA(2).fit(X), lambda e: e.transform(X)),
        (
            fenchel.infer(fenchel.BernoulliLogit("log-sum"), fenchel.DenseCovariance(K), y > 0),
            lambda s: s.posterior.variance,
        ),
        (fenchel.infer(fenchel.Poisson(), fenchel.Features(X), k), lambda s: s.posterior.mean),
        (fenchel.infer(fenchel.Gaussian(1.0), fenchel.SparsePrecision(Q), y), lambda s: s.posterior.variance),
    ):
        fenchel.save(made, tmp_path / "a.model")
        again = fenchel.load(tmp_path / "a.model")
        assert type(again) is type(made)
        assert np.allclose(use(made), use(again), rtol=1e-12, atol=2e-12)


def test_another_process_predicts_the_same(data, tmp_path):
    fit = fenchel.fit("k ~ bs(x, df=4) + C(a) + (z|g) + s(t, k=5)", data, "poisson")
    fit.save(tmp_path / "a.model")
    data.to_pickle(tmp_path / "data.pkl")
    code = (
        "import sys, fenchel, pandas\n"
        f"fit = fenchel.load({str(tmp_path / 'a.model')!r})\n"
        f"new = pandas.read_pickle({str(tmp_path / 'data.pkl')!r})\n"
        "sys.stdout.buffer.write(fit.predict(new, interval=0.9).to_numpy().tobytes())\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, env={**os.environ})
    there = np.frombuffer(ran.stdout).reshape(len(data), -1)
    assert np.allclose(there, fit.predict(data, interval=0.9), rtol=1e-11, atol=1e-12)


# -- what cannot be saved -----------------------------------------------------------------------------------
def test_functions_and_terms_of_ones_own(data, tmp_path):
    class Mine(fenchel.terms.IID):
        """A term of one's own."""

    for formula, options, word in (
        ("y ~ square(x)", {"env": {"square": lambda x: x**2}}, "'square\\(x\\)' cannot be saved: it"),
        ("y ~ square(x)", {"env": {"square": np.square}}, "'square\\(x\\)' cannot be saved: it calls square"),
        ("y ~ x.clip(4, 6)", {}, "it uses x.clip"),
        ("y ~ x", {"terms": [Mine("g")]}, "Mine FittedModel.*terms.* cannot be saved: it is of test_files"),
    ):
        fit = fenchel.fit(formula, data, **options)
        with pytest.raises(Refusal, match=word):
            fit.save(tmp_path / "a.model")
        assert not list(tmp_path.iterdir())


def test_a_kernel_of_ones_own(tmp_path):
    class Mine(kernels.RBF):
        """A kernel of one's own."""

    model = fenchel.GaussianProcessRegressor(Mine(1.0), optimizer=None, likelihood=fenchel.Gaussian(0.1))
    with pytest.raises(Refusal, match=r"cannot be saved: .* with pickle, which imports the class"):
        model.fit(np.arange(4.0)[:, None], np.arange(4.0)).save(tmp_path / "a.model")


def test_a_file_that_was_there_stays_whole(data, tmp_path, monkeypatch):
    fit = fenchel.fit("y ~ x", data)
    fit.save(tmp_path / "a.model")
    before = (tmp_path / "a.model").read_bytes()
    fenchel.load(tmp_path / "a.model").save(tmp_path / "a.model")
    assert (tmp_path / "a.model").read_bytes() == before
    monkeypatch.setattr(os, "fsync", lambda handle: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space left"):
        fenchel.fit("y ~ z", data).save(tmp_path / "a.model")
    assert (tmp_path / "a.model").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["a.model"]


# -- damaged and hostile files ------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def small(data, tmp_path_factory):
    fit = fenchel.fit("y ~ scale(x) + (1|g)", data)
    path = tmp_path_factory.mktemp("files") / "small.model"
    fit.save(path)
    return fit, path


def refused(path, fit=None, new=None, measured=True):
    """A sentence, within bounds of memory and time; or None, where it was no harm and the model is the same."""
    begun, sentence = time.perf_counter(), None
    if measured:
        tracemalloc.start()
    try:
        again = fenchel.load(path)
    except Refusal as error:
        sentence = str(error)
    finally:
        peak = tracemalloc.get_traced_memory()[1] if measured else 0
        tracemalloc.stop()
    assert peak < 60 * path.stat().st_size + 2e7
    assert time.perf_counter() - begun < 20.0
    if sentence is None and fit is not None:
        assert np.allclose(again.predict(new), fit.predict(new), rtol=1e-11)
    assert sentence is None or ("\n" not in sentence and len(sentence) < 400 + 2 * len(str(path)))
    return sentence


def test_damaged_files(small, data, tmp_path):
    """150 files: cut off, with bytes changed, removed and put in."""
    fit, path = small
    whole, chance, heard = path.read_bytes(), random.Random(0), 0
    for k in range(150):
        broken, at = bytearray(whole), chance.randrange(len(whole))
        if k % 3 == 0:
            broken = broken[:at]
        elif k % 3 == 1:
            for _ in range(chance.choice([1, 1, 5, 100])):
                broken[chance.randrange(len(broken))] ^= 1 << chance.randrange(8)
        else:
            other = bytes(chance.randrange(256) for _ in range(chance.randrange(1, 200)))
            broken[at : at + chance.randrange(200)] = other
        (tmp_path / "broken").write_bytes(bytes(broken))
        heard += refused(tmp_path / "broken", fit, data, measured=k % 10 < 3) is not None
    assert heard >= 140


def rewritten(path, change, target):
    """The file with its content changed, its checksums right."""
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(target, "w") as out:
        for info in source.infolist():
            text = source.read(info)
            if info.filename == CONTENT:
                content = json.loads(text)
                change(content)
                text = json.dumps(content).encode()
            out.writestr(info.filename, text)


def inner_nodes(node):
    """Every list of a tree that is a node, and every dict of options."""
    if isinstance(node, dict):
        yield node
    if isinstance(node, list):
        yield node
    for inner in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from inner_nodes(inner)


def test_values_that_are_not_as_they_should_be(small, tmp_path):
    """130 files whose checksums are right and whose values are changed at random: a sentence, or an object of ours."""
    _, path = small
    chance = random.Random(1)
    odd = [None, -1, 10**30, [0], ["nan"], ["x"], "text", [], {}, 0.5, [[0]], True, ["list", ["list"]], ["array", 0]]

    def change(content):
        nodes = list(inner_nodes(content["root"]))
        for _ in range(chance.choice([1, 3, 20])):
            node = chance.choice(nodes)
            keys = list(node) if isinstance(node, dict) else list(range(len(node)))
            if keys:
                node[chance.choice(keys)] = chance.choice(odd)

    heard = 0
    for k in range(130):
        rewritten(path, change, tmp_path / "odd")
        heard += refused(tmp_path / "odd", measured=k % 10 == 0) is not None
    assert heard > 100


def hostile():
    """Values that ask for more than a model, in the place of the whole."""
    deep = ["list"]
    for _ in range(300):
        deep = ["list", deep]
    columns = ["dict", ["y", ["list", 1.0, 2.0]], ["x", ["list", 1.0, 2.0]]]
    yield from (
        ["made", "os.system", ["true"], {}, []],
        ["made", "builtins.eval", ["1"], {}, []],
        ["made", "cli.main", [], {}, []],
        ["made", "files.save", [["list"], "x"], {}, []],
        ["made", "models.FittedModel.save", [["list"], "x"], {}, []],
        ["made", "models.fit", ["y ~ x", ["dict"]], {}, []],
        ["made", "models..Model", [], {}, []],
        ["made", "likelihoods", [], {}, []],
        ["made", 3, [], {}, []],
        ["made", "likelihoods.Poisson", [], {"nothing": 1}, []],
        ["made", "likelihoods.Poisson", [], {"__class__": 1}, []],
        ["made", "likelihoods.Poisson", [-1.0], {}, []],
        ["made", "likelihoods.Poisson", [["list", "a"]], {}, []],
        ["made", "likelihoods.Poisson", 3, {}, []],
        ["made", "likelihoods.Poisson", [], [], []],
        ["made", "likelihoods.Poisson", [], {}, [["dict", ["of", "fit"]]]],
        ["made", "likelihoods.Likelihood", [], {}, []],
        ["made", "inference.infer", [["made", "likelihoods.Poisson", [], {}, []], 3, ["list", 1]], {}, []],
        ["made", "inference.infer", [], {"callback": "print"}, []],
        ["made", "models.Model", ["y ~ x", columns], {"_depth": 1}, []],
        ["made", "models.Model", ["y ~ x", columns], {"n_jobs": 1}, []],
        ["made", "models.Model", ["y ~ x", "/etc/passwd"], {}, []],
        ["made", "estimators.ProbabilisticPCA", [], {"n_jobs": 64}, []],
        ["made", "models.FormulaRegressor", ["y ~ x"], {"n_jobs": 64}, []],
        ["kernel", "PairwiseKernel", ["dict", ["metric", "callable"]]],
        ["kernel", "os", ["dict"]],
        ["kernel", "RBF", ["dict", ["length", 1]]],
        ["range", 0, 10**18, 1],
        ["counter", 0, 10**18, 1, None],
        ["objects", [10**9], []],
        ["objects", [-1, -1], [1]],
        ["array", 10**9],
        ["array", -1],
        ["list", ["array", 0], ["array", 0]],
        ["sparse", "csr_array", [10**12, 10**12], 0, 1, 2],
        ["sparse", "lil_array", [1, 1], 0],
        ["index", 3, None],
        ["column", ["array", 0], "object; import os"],
        ["column", ["array", 0], "datetime64[ns, dateutil//etc/passwd]"],
        ["pickle", "cos\nsystem\n(S'true'\ntR."],
        ["dict", [["list"], 1]],
        ["dict", 3],
        ["set", ["list"]],
        ["datetime", "never"],
        ["Timestamp", 0, "dateutil//etc/passwd"],
        ["frame", ["index", ["column", ["array", 0], None], None], ["counter", 0, 3, 1, None], []],
        [["made"]],
        {"made": 1},
        deep,
    )


def test_hostile_values(small, tmp_path):
    _, path = small
    for node in hostile():

        def change(content, node=node):
            content["root"] = node

        rewritten(path, change, tmp_path / "hostile")
        assert "is damaged" in str(refused(tmp_path / "hostile")), node


def test_results_of_searches_that_do_not_fit(small, tmp_path):
    """What a search found is checked against the model that it is of: sizes, kinds, and how many there are."""
    _, path = small

    def found_in(content):
        return content["root"][4]

    def option(content, *names):
        """The pair of a nested dict of the first result."""
        node = found_in(content)[0]
        for name in names:
            pair = next(pair for pair in node[1:] if pair[0] == name)
            node = pair[1]
        return pair

    changes = [
        lambda c: found_in(c).clear(),
        lambda c: found_in(c).append(found_in(c)[0]),
        lambda c: option(c, "of").__setitem__(1, "fit"),
        lambda c: option(c, "theta").__setitem__(1, ["list", 1.0]),
        lambda c: option(c, "theta").__setitem__(1, ["list", ["nan"], 0.0]),
        lambda c: option(c, "solution").__setitem__(1, ["dict"]),
        lambda c: option(c, "solution", "alpha").__setitem__(1, ["list", 1.0]),
        lambda c: option(c, "solution", "lam").__setitem__(1, ["list", ["list", 1.0]]),
        lambda c: option(c, "solution", "s").__setitem__(1, "text"),
        lambda c: option(c, "solution", "trace").__setitem__(1, ["list", 1.0]),
        lambda c: option(c, "solution", "ending").__setitem__(1, "converged"),
        lambda c: option(c, "ending").__setitem__(1, None),
    ]
    for change in changes[:-1]:
        rewritten(path, change, tmp_path / "hostile")
        assert "is damaged" in str(refused(tmp_path / "hostile")), change


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('touch {canary}')",
        "open('{canary}', 'w')",
        "().__class__.__bases__[0].__subclasses__()",
        "np.load('{canary}')",
        "np.__builtins__",
        "(lambda: 1)()",
        "[x for x in range(3)]",
        "eval('1')",
        "scale.__globals__",
        "getattr(np, 'save')('{canary}', x)",
        "contr.__init__.__globals__",
        "f'{{x!r}}'",
        "x[0]",
        "(y := 3)",
    ],
)
def test_expressions_of_a_formula_that_would_run_code(small, data, tmp_path, text):
    _, path = small
    canary, evil = tmp_path / "canary", text.replace("{canary}", str(tmp_path / "canary"))

    def change(content):
        model = content["root"][2][0]
        assert "scale(x)" in model[2][0]
        model[2][0] = f"y ~ I({evil}) + (1|g)"

    rewritten(path, change, tmp_path / "hostile")
    assert "is damaged" in refused(tmp_path / "hostile")
    assert not canary.exists()
    with pytest.raises(NotAllowed):
        read(evil)


def test_expressions_that_may_be_saved():
    for text in ("scale(x)", "np.log(x + 1) ** 2", "bs(x, df=4, degree=3)", "C(a, contr.treatment('b'))", "`odd name`"):
        read(text)
    for text in ("x if x > 0 else -x", "np.where(x > 0, x, 0)", "log(x)", "1", "poly(x, 2)", "{'a': 1}", "abs(x)"):
        read(text)


def test_hostile_archives(tmp_path):
    bad = tmp_path / "bad"

    def zipped(*members, how=zipfile.ZIP_STORED):
        with zipfile.ZipFile(bad, "w", how) as out:
            for name, content in members:
                out.writestr(name, content)
        return refused(bad)

    def npy(header, payload=b""):
        text = header.encode()
        return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + payload

    plain = json.dumps({"format": "fenchel", "version": stored.VERSION, "holds": "x", "root": ["array", 0]})
    assert "compressed" in zipped((CONTENT, plain + " " * 10_000_000), how=zipfile.ZIP_DEFLATED)
    for shape, dtype in (
        ("(1000000000000,)", "<f8"),
        ("(9223372036854775807, 9223372036854775807)", "<f8"),
        ("(-1,)", "<f8"),
        ("(2,)", "|O"),
        ("(2,)", "|V8"),
        ("(1,)", "[('a', '<f8')]"),
        ("(3,)", "<f8"),
        ("(__import__('os'),)", "<f8"),
    ):
        header = f"{{'descr': {dtype if dtype[0] == '[' else repr(dtype)}, 'fortran_order': False, 'shape': {shape}}}\n"
        assert "is damaged" in zipped((CONTENT, plain), ("arrays/0.npy", npy(header, b"\0" * 16)))
    assert "is damaged" in zipped((CONTENT, plain), ("arrays/0.npy", b"\x93NUMPY\x09\x00"))
    assert "is damaged" in zipped((CONTENT, "[" * 200_000))
    assert "is damaged" in zipped((CONTENT, "[1, 2]"))
    assert "is damaged" in zipped((CONTENT, "9" * 100_000))
    assert "is damaged" in zipped((CONTENT, b"\xff\xfe"))
    assert "is damaged" in zipped(("../../evil", "x"))
    assert "is damaged" in zipped((CONTENT, plain), ("arrays/1.npy", "x"))
    assert "is not a file of fenchel's" in zipped((CONTENT, "{}"))
    deep = '["list",' * 50_000 + '["list"]' + "]" * 50_000
    assert "is damaged" in zipped((CONTENT, plain.replace('["array", 0]', deep)))
    newer = json.dumps({**json.loads(plain), "version": 99})
    assert "has format 99, of a newer fenchel" in zipped((CONTENT, newer))
    for content, word in ((b"", "is not a file"), (b"PK", "is damaged"), (b"a,b\n1,2\n", "is not a file")):
        bad.write_bytes(content)
        assert word in refused(bad)
    bad.write_bytes(pickle.dumps(3))
    assert "is a pickle" in refused(bad)
    with pytest.raises(FileNotFoundError):
        fenchel.load(tmp_path / "none")


def test_another_version_is_announced(small, data, tmp_path):
    fit, path = small

    def change(content):
        content["with"]["formulaic"] = "0.1.2"

    rewritten(path, change, tmp_path / "older")
    with pytest.warns(UserWarning, match=r"was written with formulaic 0.1.2, and this is"):
        assert_same(fit, fenchel.load(tmp_path / "older"), data)


@pytest.mark.parametrize(
    "value",
    [
        pd.Series(pd.Categorical(["b", "a", None], categories=["b", "a"], ordered=True)),
        pd.Series([1, None, 3], dtype="Int64"),
        pd.Series(["p", None], dtype="string"),
        pd.Series(pd.period_range("2020-01", periods=3, freq="M")),
        pd.Series(pd.date_range("2020", periods=3, tz="Europe/Berlin")),
        pd.DataFrame({("a", 1): [1.0], ("b", 2): ["x"]}),
        sparse.coo_array(np.eye(3)),
        sparse.csr_matrix(np.eye(3)),
        {"a": (1, {2}, frozenset({3})), 2: [np.float32(1.5), float("inf"), None], None: range(3)},
        np.array([None, "a", 3], dtype=object),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        pd.Timestamp("2020-01-02", tz="UTC"),
        pd.Timedelta("3D"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_come_back(value, tmp_path):
    fenchel.save([value], tmp_path / "a")
    (again,) = fenchel.load(tmp_path / "a")
    if hasattr(value, "columns"):
        pd.testing.assert_frame_equal(again, value)
    elif hasattr(value, "index"):
        pd.testing.assert_series_equal(again, value)
    elif hasattr(value, "tocsr"):
        assert np.array_equal(again.toarray(), value.toarray())
    else:
        assert np.array_equal(again, value) if isinstance(value, np.ndarray) else again == value

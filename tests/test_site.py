"""The pages of the site: every formula in them can be read, every name exists, every page is reached."""

import re
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fenchel
from fenchel.likelihoods import WORDS as FAMILIES
from fenchel.terms import WORDS as TERMS

DOCS = Path(__file__).parent.parent / "docs"
COUNTS = ("poisson", "nbinom2", "zero-inflated-poisson", "hurdle-negative-binomial", "negative-binomial")
Y_OF = {**dict.fromkeys(COUNTS, "deaths"), "bernoulli": "ill", "probit": "ill", "tweedie": "rain"}
FORMULA = re.compile(r'fit\("([^"~]*~[^"]+)"')


@pytest.fixture(scope="module")
def generated_pages():
    """``docs/generated_pages.py``."""
    sys.path.insert(0, str(DOCS))
    try:
        import generated_pages as module
    finally:
        sys.path.remove(str(DOCS))
    return module


@pytest.fixture(scope="module")
def pages(generated_pages, tmp_path_factory):
    """Every page, the generated ones too, by its path below docs/."""
    folder = tmp_path_factory.mktemp("docs")
    generated_pages.write(folder)
    made = {str(p.relative_to(folder)): p.read_text(encoding="utf-8") for p in folder.rglob("*.md")}
    skipped = ("_build", "api", "families", "terms", "examples", "_static", "_templates")
    written = {p for p in DOCS.rglob("*.md") if p.relative_to(DOCS).parts[0] not in skipped}
    kept = {str(p.relative_to(DOCS)): p.read_text(encoding="utf-8") for p in written}
    return {**kept, **made}


@pytest.fixture(scope="module")
def table():
    """A table with every column that formulas of the pages name."""
    rng, n = np.random.default_rng(0), 120
    names = "x z y X Y depth age temperature humidity elevation area lon lat smoking score price hour visit drug"
    out = pd.DataFrame({name: rng.normal(size=n) for name in names.split()})
    steps = np.tile(np.arange(24), 5)
    out = out.assign(t=steps, year=steps, month=steps, day=steps, interval=steps, subject=np.repeat(np.arange(5), 24))
    for name in ("g", "r", "county", "child", "rater", "item", "first_school", "second_school", "region"):
        out[name] = rng.integers(0, 10, n)
    for name in ("deaths", "visits", "hits", "size"):
        out[name] = rng.poisson(2.0, n) + (name == "size")
    out = out.assign(n=20, expected=1.0, E=1.0, ill=rng.integers(0, 2, n), event=rng.integers(0, 2, n))
    out = out.assign(sex=rng.choice(["f", "m"], n), arm=rng.choice(["a", "b"], n), rating=rng.integers(0, 4, n))
    positive = {name: rng.gamma(2.0, size=n) for name in ("time", "weeks", "cost", "rain")}
    return out.assign(**positive, share=rng.uniform(0.1, 0.9, n), returns=rng.normal(size=n), f=out["sex"])


def test_every_family_and_every_term_has_a_page(pages):
    assert {Path(p).stem for p in pages if p.startswith("families/")} == set(FAMILIES)
    assert {Path(p).stem for p in pages if p.startswith("terms/")} == {*TERMS, "group", "field"}


def test_every_warning_has_a_cause_and_a_cure(generated_pages):
    sentences = generated_pages.warnings_and_remarks()
    assert len(sentences) > 50
    assert [text for text in sentences if not all(generated_pages.cause_of(text))] == []


def test_every_formula_on_the_pages_of_families_and_terms_and_converts_can_be_read(pages, table):
    ring = np.diag(np.ones(9), 1)
    known = {"W": ring + ring.T, "R": np.eye(10), "Q": np.eye(10), "apart": fenchel.mesh(table[["x", "y"]].to_numpy())}
    read = 0
    for name, text in pages.items():
        if name.partition("/")[0] not in ("families", "terms", "coming_from"):
            continue
        for match in FORMULA.finditer(text):
            formula = match.group(1).replace(r"\|", "|")
            call = text[match.end() :].partition("\n")[0]
            family = re.search(r'family="([\w-]+)"', call)
            options = dict(re.findall(r'(exposure|trials|zero|baseline)="([^"]+)"', call))
            if "icar(r)" in formula or "icar(county)" in formula or "bym2(r)" in formula:
                options["graphs"] = {"r": known["W"], "county": known["W"]}
            word = family and family.group(1)
            own = table.assign(y=table[Y_OF.get(word, "y")])
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # columns of noise are odd coordinates, and groups of a row
                fenchel.Model(formula, own, family=word, env=known, **options)
            read += 1
    assert read >= 60


def test_the_priors_on_the_pages_of_terms_can_be_stated(pages, table):
    env = {"W": np.diag(np.ones(9), 1) + np.diag(np.ones(9), -1), "R": np.eye(10)}
    own = table.assign(a=table["g"], b=table["county"])
    stated = [re.findall(r"`priors=({.*?})`: P", text) for name, text in pages.items() if name.startswith("terms/")]
    assert min(len(priors) for priors in stated) >= 1
    for written in (text for priors in stated for text in priors):
        priors = eval(written.replace(r"\|", "|"), {"fenchel": fenchel})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fenchel.Model(f"y ~ {next(iter(priors))}", own, "gaussian", priors=priors, graphs={"r": env["W"]}, env=env)


def test_names_that_converts_are_told_of_exist(pages):
    promised = {
        name for p, text in pages.items() if p.startswith("coming_from/") for name in re.findall(r"fit\.(\w+)", text)
    }
    assert promised
    assert {name for name in promised if not hasattr(fenchel.FittedModel, name)} - {
        "effects",
        "gap",
        "model",
        "converged",
    } == set()
    named = {n for text in pages.values() for n in re.findall(r"fenchel\.([A-Za-z]\w+)\(", text)}
    assert {name for name in named if not hasattr(fenchel, name)} == set()


def test_links_between_pages_lead_somewhere(pages):
    for name, text in pages.items():
        prose = re.sub(r"```.*?```", "", text, flags=re.S)
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", prose):
            if "://" in target or target.startswith(
                ("../examples", "../../examples", "../src", "../benchmarks", "../tests")
            ):
                continue
            place = (DOCS / name).parent / target
            inside = (
                str(place.resolve().relative_to(DOCS.resolve())) if DOCS.resolve() in place.resolve().parents else None
            )
            made = DOCS.parent / "examples" / f"{inside}".replace(".rst", ".py")  # a page when the site is built
            assert inside in pages or place.exists() or made.exists(), (name, target)


def test_every_page_is_in_a_table_of_contents(pages):
    listed = set()
    for name, text in pages.items():
        for block in re.findall(r"```\{toctree\}\n(.*?)```", text, re.S):
            entries = [line.strip() for line in block.splitlines() if line.strip() and not line.startswith(":")]
            listed |= {str(Path(name).parent / entry) + ".md" for entry in entries}
    assert {str(Path(name)) for name in pages} - listed == {"index.md"}

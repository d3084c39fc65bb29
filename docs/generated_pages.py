"""Pages that are made from the source: a page for each family and each term, the gallery, and the list of messages.

``write(folder)`` writes them as Markdown; ``conf.py`` calls it before each build. None of them is kept in git.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import causes
import tables
import which_model_picture

from fenchel.likelihoods import WORDS as FAMILIES
from fenchel.terms import WORDS as TERMS
from fenchel.terms import Grouped, Matern

DOCS = Path(__file__).parent
ROOT = DOCS.parent
SOURCE = ROOT / "src" / "fenchel"
PRIOR = "hyperparameters and their priors"
GENERATED = ("families.md", "terms.md", "gallery.md", "messages.md")  # and families/, terms/, examples/
SUPPORT = {
    "real": "a real number",
    "count": "a count",
    "positive": "a positive number",
    "unit": "a number between 0 and 1",
    "levels": "a label or a level",
}
VALUES = {
    "tweedie": "0, or a positive number",
    "bernoulli": "0 or 1, or one of two labels",
    "probit": "0 or 1, or one of two labels",
    "ordinal": "an ordered category, or 0, 1, 2, ...",
    "ordinal-probit": "an ordered category, or 0, 1, 2, ...",
    "binomial": "a number of successes",
    "beta-binomial": "a number of successes",
    "exponential": "a duration; `cens(time, event)` or `interval(lower, upper)` if it may be censored",
    "weibull": "a duration; `cens(time, event)` or `interval(lower, upper)` if it may be censored",
}
COEFFICIENTS = {  # what their exponentials are called, and how fits report these
    None: "on the scale of $\\eta$",
    "odds_ratio": '$e^\\beta$ is an odds ratio: `fit.coefficients["odds_ratio"]`',
    "relative_risk": '$e^\\beta$ is a ratio of means (a relative risk): `fit.coefficients["relative_risk"]`',
    "mean_ratio": '$e^\\beta$ is a ratio of means: `fit.coefficients["mean_ratio"]`',
    "hazard_ratio": "$e^\\beta$ is a hazard ratio, and a positive coefficient means a shorter duration: "
    '`fit.coefficients["hazard_ratio"]`',
}


def write(folder: Path = DOCS) -> None:
    """Write every generated page below a folder; a page that has not changed is left alone."""
    pages = {**families(), **terms(), **gallery(), "messages.md": messages()}
    pages["start/which_model.svg"] = which_model_picture.picture()
    for name, text in pages.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


# -- families -------------------------------------------------------------------------------------------------
def families() -> dict[str, str]:
    """A page for each word of ``family=``, and the table of all."""
    rows, out = [], {}
    for word, own in FAMILIES.items():
        peers = tables.FAMILIES[word]
        rows.append(f"| [`{word}`](families/{word}.md) | {peers['in one line']} |")
        out[f"families/{word}.md"] = _family(word, own, peers)
    head = "| family | y is |\n|---|---|\n"
    out["families.md"] = (
        "# Families\n\nA family is the distribution of y given the linear predictor eta. `family=` of a formula, and "
        "`likelihood=` of an estimator, is one of these names. [How to choose a model](start/which_model.md) "
        "helps to choose.\n\n"
        f"{head}{chr(10).join(rows)}\n"
        "| [`multinomial`](formulas.md#families) | one of several unordered labels |\n"
        "| [`cox`](formulas.md#families) | a duration whose baseline hazard may have any shape |\n\n"
        f"```{{toctree}}\n:hidden:\n{chr(10).join(f'families/{word}' for word in FAMILIES)}\n```\n"
    )
    return out


def _family(word: str, own: object, peers: dict[str, str]) -> str:
    kind = type(own)
    rows = [
        ("y is", VALUES.get(word, SUPPORT[own.support])),
        ("distribution", peers["distribution"]),
        ("link", peers["link"]),
        ("coefficients", COEFFICIENTS[own.ratio]),
        ("own parameters and their priors", _priors(word)),
        *(
            ("to give one a formula", f'`{p.formula[0]}="~ x"` models the {p.formula[1]}')
            for p in own.learned
            if p.formula
        ),
        ("argument for each row", ", ".join(f"`{name}=`" for name in own.needs)),
        ("other names", ", ".join(f"`{a}`" for a in own.aliases)),
        ("in R", peers["in R"]),
        ("in Python", peers["in Python"]),
        *_fitting(word, own),
    ]
    table = "\n".join(f"| {name} | {text} |" for name, text in rows if text)
    return (
        f"# {word}\n\n{peers['in one line'][0].upper()}{peers['in one line'][1:]}.\n\n"
        f"```python\n{peers['example']}\n```\n\n"
        f"Here $\\eta$ is the linear predictor: the right side of the formula.\n\n| | |\n|---|---|\n{table}\n\n"
        f"```{{figure}} {word}.png\n:alt: {word}\n\n{_caption(word, own)}\n```\n\n"
        "## The likelihood as an object\n\n`family=` also takes this object, with settings of your own.\n\n"
        f"```{{eval-rst}}\n.. autoclass:: {kind.__module__}.{kind.__qualname__}\n   :no-index:\n```\n"
    )


def _priors(word: str) -> str:
    """The priors of a family's own parameters, with the names that ``priors=`` has for them, from docs/formulas.md."""
    page = (DOCS / "formulas.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \| (`[^|]+`) \| ([^|]+) \|$", page, re.M)
    told = [
        f"{default.replace('...', 'm')}" + (f", called `{name}` in `priors=`" if name not in default else "")
        for name, _, default, families in rows
        if word in families.split(", ")
    ]
    started = ". The number m is the starting value, computed from y" if any("N(m" in text for text in told) else ""
    return "; ".join(told) + started or "none"


def _fitting(word: str, own: object) -> list[tuple[str, str]]:
    """What is proved of a fit, and what a row costs."""
    if own.bound == "none" or word in ("tweedie", "laplace"):
        cost = "the expectations of a row have a closed form: such fits are the fastest"
    elif own.bound == "exact" and own.log_concave:
        cost = "an integral in one dimension for each row and iteration, to double precision"
    else:
        cost = "a bound for each row and iteration, in closed form or by a few Newton steps"
    if own.bound == "none":
        proof = "the gap proves how far the fit is from the best Gaussian, by a convex dual problem"
    elif own.log_concave or own.bound == "tangent":
        proof = "the gap proves how far the fit is from the best Gaussian, by strong concavity"
        proof += "; the tails of the log density are bounded by their tangents" * (own.bound == "tangent")
    else:
        proof = "none: the likelihood is not log-concave. The fit is a stationary point, and another one may be better"
    return [("certificate", proof), ("cost", cost)]


def _caption(word: str, own: object) -> str:
    if own.support == "levels":
        return "The probability of each y as a function of eta."
    if word == "tweedie":
        return "The density of the positive values of y at three values of eta."
    return f"The {'probability' if own.support == 'count' else 'density'} of y at three values of eta."


# -- terms ----------------------------------------------------------------------------------------------------
def terms() -> dict[str, str]:
    """A page for each word of a formula, and the table of all."""
    kinds = {**TERMS, "group": None, "field": Matern}
    rows, out = [], {}
    for word, peers in tables.TERMS.items():
        cells = (f"[`{peers['write']}`](terms/{word}.md)", peers["in one line"])
        rows.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
        out[f"terms/{word}.md"] = _term(word, kinds[word], peers)
    out["terms.md"] = (
        "# Terms\n\nA term is a part of the right side of a formula: an effect of groups, times, places or covariates "
        "with a Gaussian prior. Terms and covariates add up to the linear predictor.\n\n"
        f"| write | what it is |\n|---|---|\n{chr(10).join(rows)}\n\n"
        f"```{{toctree}}\n:hidden:\n{chr(10).join(f'terms/{word}' for word in tables.TERMS)}\n```\n"
    )
    return out


def _term(word: str, kind: type | None, peers: dict[str, str]) -> str:
    skipped = ("write", "in one line", "example", "picture")
    name = peers["write"] if kind else "(1|g)"
    change = f'`priors={{"{name}": fenchel.PC(sd=1, alpha=0.01)}}`: P(sd > 1) = 0.01'
    if word == "bym2":
        change += (
            f'. `priors={{"{name}": {{"phi": fenchel.PC(phi=0.5, alpha=2 / 3)}}}}`: P(phi < 0.5) = 2/3, as in R-INLA'
        )
    if "range:" in peers[PRIOR] or "as `gp`" in peers[PRIOR]:
        own = "range x" if word in ("gp", "vecchia") else "range"
        change += f'. `priors={{"{name}": {{"{own}": fenchel.PC(range=2, alpha=0.05)}}}}`: P({own} < 2) = 0.05'
    rows = {}
    for row, text in peers.items():
        rows[row] = text
        if row == PRIOR:
            rows["to change a prior"] = change
        if row == "in R":
            rows["in Python"] = tables.PYTHON_TERMS.get(word, "-")
    table = "\n".join(
        f"| {row} | {text.replace('|', chr(92) + '|')} |" for row, text in rows.items() if row not in skipped
    )
    shown = kind or Grouped
    return (
        f"# {word if kind else '(x | g)'}\n\n{peers['in one line'][0].upper()}{peers['in one line'][1:]}.\n\n"
        f"```python\n{peers['example']}\n```\n\n| | |\n|---|---|\n{table}\n\n"
        "Default priors of sds are on the scale of the linear predictor; if y is a real number with noise, they are in "
        "units of the sd of y ([priors](../priors.md)). A prior that you state is on the scale of the linear "
        "predictor.\n\n"
        f"```{{figure}} {word}.png\n:alt: {word}\n\nDraws of the effects from the prior, with an sd of 1.\n```\n\n"
        "## The term as an object\n\n`Model(..., terms=[...])` takes this object; a formula makes it for you.\n\n"
        f"```{{eval-rst}}\n.. autoclass:: {shown.__module__}.{shown.__qualname__}\n   :no-index:\n```\n"
    )


# -- examples -------------------------------------------------------------------------------------------------
def gallery() -> dict[str, str]:
    """A page for each script of ``examples/``, with its picture, its text and its code."""
    out, cards = {}, []
    for path in sorted((ROOT / "examples").glob("*.py")):
        text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        title, _, rest = text.partition("\n\n")
        rest = re.sub(r"(?m)^    python examples.*$", "", rest).strip()
        picture = ROOT / "examples" / "pictures" / f"{path.stem}.png"
        image = f"![{path.stem}](../../examples/pictures/{path.stem}.png)\n\n" if picture.exists() else ""
        head = title.replace("\n", " ").rstrip(".")
        out[f"examples/{path.stem}.md"] = (
            f"# {head.partition(':')[0]}\n\n{head}.\n\n{image}{rest}\n\n"
            f"```{{literalinclude}} ../../examples/{path.name}\n:language: python\n```\n"
        )
        shown = f":img-top: ../examples/pictures/{path.stem}.png\n" if picture.exists() else ""
        name, _, more = head.partition(": ")
        text = f"{more[0].upper()}{more[1:]}." if more else ""
        cards.append(f":::{{grid-item-card}} {name}\n:link: examples/{path.stem}\n:link-type: doc\n{shown}{text}\n:::")
    listed = "\n".join(name[:-3] for name in out)
    out["gallery.md"] = (
        "# Gallery\n\nShort scripts, most of them on real data. `python examples/NAME.py picture.png` runs one.\n\n"
        f"::::{{grid}} 1 2 2 3\n:gutter: 3\n\n{chr(10).join(cards)}\n::::\n\n```{{toctree}}\n:hidden:\n{listed}\n```\n"
    )
    return out


# -- messages -------------------------------------------------------------------------------------------------
def messages() -> str:
    """Every sentence that the library refuses with or warns of, by the part of the library that says it."""
    found: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for path, tree in _trees():
        room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "problem" and len(node.args) >= 3:
                texts = [_text(argument) for argument in node.args]
                cure = f"Expected {texts[2]}." + (f" {texts[3]}" if len(texts) > 3 else "")
                found[room].append((texts[1], cure))
    parts = []
    for room, rows in sorted(found.items()):
        lines = "\n".join(f"| {_cell(what)} | {_cell(cure)} |" for what, cure in sorted(set(rows)) if _says(what))
        if lines:
            parts.append(f"### {room}\n\n| what it says | what to do |\n|---|---|\n{lines}\n")
    rows = [(text, *cause_of(text)) for text in warnings_and_remarks()]
    warned = "\n".join(
        f"| {_cell(text)} | {cause} | {cure.replace('|', chr(92) + '|')} |"
        for text, cause, cure in sorted(rows)
        if cause
    )
    head = "# Every message\n\nThis page lists every warning and error. `...` stands for a name or a number of yours."
    later = (
        "They appear after a fit, in `fit.summary()`, `fit.remarks` and `fit.check()`: something may be wrong with it."
    )
    return (
        f"{head} Search it for the words that you see.\n\n## Warnings, remarks and checks\n\n{later}\n\n"
        f"| what it says | cause | what to do |\n|---|---|---|\n{warned}\n\n## Errors\n\n"
        "They appear before any computation. Each table has those of one part of the library.\n\n" + "\n".join(parts)
    )


def _trees() -> list[tuple[Path, ast.Module]]:
    paths = [path for path in sorted(SOURCE.rglob("*.py")) if path.relative_to(SOURCE).parts[0] != "paper"]
    return [(path, ast.parse(path.read_text(encoding="utf-8"))) for path in paths]


def warnings_and_remarks() -> list[str]:
    """The sentences in functions that warn, or that make remarks; those of errors are not among them."""
    found = set()
    for path, tree in _trees():
        checks = path.name in ("remarks.py", "fit_check.py")
        for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
            calls = {
                getattr(n.func, "attr", getattr(n.func, "id", ""))
                for n in ast.walk(function)
                if isinstance(n, ast.Call)
            }
            named = function.name in ("remarks", "remarks_at", "doubts", "doubt_of") or checks
            if named or calls & {"warn", "Remark"}:
                body = function.body[1:] if ast.get_docstring(function) else function.body
                found |= {" ".join(text.split()) for part in body for text in _sentences(part)}
    return sorted(text for text in found if len(re.findall(r"[A-Za-z]{2,}", text)) >= 5)


def _sentences(node: ast.AST) -> list[str]:
    """The texts below a node, without those of errors."""
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("problem", "Refusal"):
        return []
    texts = isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))
    joined = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and "Str" in ast.dump(node)
    if texts or joined:
        return [_text(node)]  # type: ignore[arg-type]
    return [text for child in ast.iter_child_nodes(node) for text in _sentences(child)]


def cause_of(text: str) -> tuple[str, str]:
    """Cause and cure of a sentence, both empty where nobody has written them."""
    return next((row for words, row in causes.CAUSES.items() if words in text), ("", ""))


def _text(node: ast.expr) -> str:
    """A string as it is written, with ... for what is filled in."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(_text(value) for value in values)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _text(left) + _text(right)
        case ast.IfExp(body=body, orelse=other):
            return " or ".join(dict.fromkeys(text for text in (_text(body), _text(other)) if text)) or "..."
    return "..."


def _says(text: str) -> bool:
    """Whether a sentence has words of its own, and not names and numbers of the user alone."""
    return len(re.findall(r"[a-z]{2,}", text)) >= 2


def _cell(text: str) -> str:
    """A text that a Markdown table takes as it is."""
    return re.sub(r"([\\`*_{}\[\]<>$|])", r"\\\1", " ".join(text.split()))


if __name__ == "__main__":
    write()

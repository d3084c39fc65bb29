"""``fit.check()``: possible problems of a fit, the most severe first.

``remarks.py`` has the sentences about the data and about what the prior decides; here are those about the results.

prior         theta changes if the scale of its prior is doubled: computed with the weights w_k p'(theta_k) / p(theta_k)
              of the fitted points, or at the mode from the curvature, C (log p' - log p)'
correction    the correction to the Gaussian is large and not used, or it is unreliable
residuals     a test of ``fit.residual_tests()`` is rarer than in one of fifty correct models, adjusted for all tests;
              with many rows and latents no data sets are drawn, and only Kolmogorov's distance of the PIT is tested
spread        counts vary about E[y | eta] more or less than the family says, or have more zeros: the sum of
              (y - E y)^2 / max(Var y, 1) and the number of zeros at draws of eta are compared with those of counts
              drawn there. The 1 bounds the terms of rows whose expected counts are tiny: (y - E y)^2 / Var y, which
              has variance 2 + 1 / mu for Poisson, is 1 / mu for one event in a piece of time that ended with it
rows          a row changes its own eta by improbably many standard deviations of its prediction from the others
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtri

from ..hyperparameters.priors import Density
from ..linalg.arrays import to_numpy
from . import remarks
from .capabilities import answers
from .remarks import Remark
from .residual_tests import RowResiduals, counts_events, rare_tests, uniform_distance
from .row_criteria import pit

if TYPE_CHECKING:
    import pandas as pd

    from .fit_tables import FitTables
    from .fitted import FittedModel

WRONG, LITTLE, NOTE = 3, 2, 1  # severities: results may be wrong; the data determine little; a note
_MOVES = 0.3  # sds of theta by which a prior must move it to be mentioned
_MOVES_SD = 0.1  # of log sd or log range, below which a prior hardly matters
_SHORT = 0.5  # nats by which the elbo must fall short of the corrected evidence to be mentioned
_STEEP = 3.0  # power of the sd of groups with which that shortfall grows (2 to 4)
_UNIFORM = 1.63  # sqrt(N) times Kolmogorov's distance that one in a hundred correct models exceeds
_RARE_TESTS = 0.02  # adjusted p-value below which a test of residuals is mentioned
_TESTED = 5_000  # rows and latents up to which data sets are drawn for these tests
_RARE = 0.01  # share of correct models in which a row, or a spread, is mentioned
_SPREAD = 0.1  # relative difference in the variance of counts from which it is mentioned
_SAME_SPREAD = 0.05  # relative difference in the variances of y and of the PIT that counts as equal
_DRAWS, _CELLS = 100, 4_000_000  # data sets that are drawn, and numbers in all of them
_CELLS_AT_ONCE = 400_000  # numbers up to which a summary draws them
_SHOWN = 3  # rows that are named
CURES = {
    "search": "n_restarts=5 starts elsewhere; another prior, or fewer terms",
    "answers": "state priors of the hyperparameters, or compare the results with MCMC",
    "correction": "accuracy='high', or fit.solution.importance()",
    "prior": "state the prior: priors={...}; fit.priors lists all of them",
    "separation": "state a prior of the coefficient, or leave its column out",
    "groups": "leave the term out, or use fewer levels",
    "response": "check y",
    "prediction": "fit.plot_check('pit') shows how; another family, or a missing term",
    "dispersion": "another family, or a missing term",
    "outliers": "a family with heavier tails, such as student-t or negative-binomial",
    "link": "another link or family, or a curve: s(x)",
    "curve": "s(x) instead of x, or I(x**2) in addition",
    "slope": "(x|g) instead of (1|g)",
    "changing spread": "dispersion='~ x' if the family has one; fit.plot_residuals() shows where",
    "autocorrelation": "add a series: ar1(t), rw1(t)",
    "spread": "family='negative-binomial', for trials 'beta-binomial'; or an effect of every row, (1|row)",
    "zeros": "family='zero-inflated-poisson' or 'negative-binomial', or a hurdle",
    "rows": "check these rows; a family with more spread, such as student-t, negative-binomial or beta-binomial",
}


class FitCheck:
    """The result of ``fit.check()``: it prints as a list of possible problems, the most severe first.

    Attributes
    ----------
    remarks : list of Remark
        Sentences with a topic ``name`` and a ``severity``.
    untested : str
        The checks that were left out, and the call that makes them; empty if there are none.

    Examples
    --------
    >>> import fenchel, pandas as pd
    >>> data = pd.DataFrame({"y": [0, 9, 1, 14, 0, 22, 8, 2]})
    >>> fenchel.fit("y ~ 1", data, "poisson", accuracy="fast").check().to_frame()[["name", "severity"]]
             name  severity
    0      spread         2
    1  prediction         2
    """

    def __init__(self, problems: list[Remark], untested: str = "") -> None:
        self.remarks = sorted(dict.fromkeys(problems), key=lambda remark: -remark.severity)
        self.untested = untested

    @property
    def sentences(self) -> list[str]:
        """The sentences, the most severe first."""
        return [f"{_capitalised(remark)}." for remark in self.remarks]

    @property
    def first(self) -> str:
        """The most severe problem in one line, with the number of further ones."""
        if not self.remarks:
            return "check: no problem found by the quick checks; call fit.check() for the others"
        worst, more = self.remarks[0], len(self.remarks) - 1
        word = "CHECK" if worst.severity == WRONG else "check"
        return f"{word}: {worst}" + (f"; fit.check() has {more} more" if more else "")

    def to_frame(self) -> pd.DataFrame:
        """A frame of name, severity (3: results may be wrong, 2: the data determine little, 1: a note), sentence and
        what_to_do."""
        import pandas as pd

        cures = [CURES.get(remark.name, "") for remark in self.remarks]
        columns = {"name": [r.name for r in self.remarks], "severity": [r.severity for r in self.remarks]}
        return pd.DataFrame({**columns, "sentence": self.sentences, "what_to_do": cures})

    def __len__(self) -> int:
        return len(self.remarks)

    def __iter__(self) -> Iterator[str]:
        return iter(self.sentences)

    def __repr__(self) -> str:
        cures = [f" ({CURES[r.name]})" if r.name in CURES else "" for r in self.remarks]
        lines = [f"{i + 1}. {text}{cure}" for i, (text, cure) in enumerate(zip(self, cures, strict=True))]
        return "\n".join([*(lines or ["no problems found"]), *([self.untested] if self.untested else [])])


def _capitalised(sentence: str) -> str:
    """Capitalise a sentence, unless it begins with the name of a term or of a part."""
    first = sentence.split(" ", 1)[0]
    return f"{sentence[0].upper()}{sentence[1:]}" if first.isalpha() else sentence


def quick_check(fit: FitTables) -> FitCheck:
    """The checks that need no further computation, and with few rows that of the spread of counts."""
    few = not fit.parts and _DRAWS * fit.model.target.y.size <= _CELLS_AT_ONCE
    return FitCheck([*_known(fit), *(_of_spread(fit) if few else [])])


def _known(fit: FitTables) -> list[Remark]:
    """The remarks that need no further computation."""
    if fit.parts:
        return [Remark(f"{name}: {r}", r.name, r.severity) for name, p in fit.parts.items() for r in _known(p)]
    result = [Remark(doubt, "answers", WRONG) for doubt in fit.engine.doubts(fit)]
    if not fit.converged:
        result.append(Remark(f"the fit did not converge: {fit.found.status}", "search", WRONG))
    if fit.answers is not None and not fit.answers.marginals_trusted:
        result.append(Remark(fit.answers.status, "correction", WRONG))
    own = fit.engine.keeps_rows
    of_data = [*remarks.of_rows(fit.model), *remarks.of_family(fit.model)] if own else []
    result += [*of_data, *fit.remarks, *remarks.undetermined(fit)]
    return [*result, *(_moved_by_priors(fit) if own else [])]


def full_check(fit: FittedModel) -> FitCheck:
    """All checks, with those that need leave-one-out predictions or a correction."""
    result, untested = _known(fit), ""
    for name, part in fit.parts.items() or {"": fit}.items():
        more = [*_short_of_evidence(part), *_of_spread(part), *_of_rows(part)]
        has_tests = answers(part, "residual_tests")
        if has_tests and _size(part) <= _TESTED:
            more += _of_residuals(part, {r.name for r in more})
        elif answers(part, "loo") and not part.model.reduction.predictors(part.model):
            more += [] if counts_events(part) else _of_predictions(part)
            if has_tests:
                untested = f"with more than {_TESTED} rows and latents no data sets were drawn: fit.residual_tests()"
        result += [Remark(f"{name}: {r}" if name else r, r.name, r.severity) for r in more]
    return FitCheck(result, untested)


def _moved_by_priors(fit: FitTables) -> list[Remark]:
    """Remarks on sds and ranges that depend on their prior."""
    entries = [(term, h) for term in fit.model.sum.effects for h in term.hyperparameters]
    over, out = fit.integrated, []
    for i, (term, h) in enumerate(entries):
        prior = h.prior
        if prior is None or not (h.size is not None or h.name.startswith("range")) or i in fit.found.at_bounds:
            continue

        def gain(theta: float, prior: Density = prior) -> tuple[float, float]:
            wide, own = prior(theta - float(np.log(2.0))), prior(theta)
            return wide[0] - own[0], wide[1] - own[1]

        if over is None:
            value, variance = float(fit.theta[i]), float(fit.theta_covariance[i, i])
            moved_value = value + variance * gain(value)[1]
        else:
            at, w = over.thetas[:, i], over.weights
            moved = w * np.exp([gain(theta)[0] for theta in at])
            value, moved_value = float(w @ at), float(moved @ at / moved.sum())
            variance = float(w @ (at - value) ** 2)
        if variance > 0.0 and abs(moved_value - value) > max(_MOVES * np.sqrt(variance), _MOVES_SD):
            values = f"{h.value(moved_value):.3g} instead of {h.value(value):.3g}"
            text = f"the {h.name} of {term.name} depends on its prior: with twice its scale it would be {values}"
            out.append(Remark(text, "prior", LITTLE))
    return out


def _short_of_evidence(fit: FittedModel) -> list[Remark]:
    """A remark if the Gaussian is used and its evidence falls short of the corrected one."""
    plain = fit.integrated is None or fit.integrated.evidence == "elbo"
    if (
        not plain
        or fit.answers is not None
        or fit.found.likelihood.objective.conjugate
        or not answers(fit, "corrected")
    ):
        return []
    result = fit.solution.corrected()
    short = float(result.log_evidence - fit.solution.elbo)
    if result.method != "clusters" and not result.trusted:
        text = f"the Gaussian is not corrected, as a correction may be wrong: {result.status}"
        return [Remark(text, "correction", LITTLE)]
    moves = _STEEP * short * np.sqrt(np.diag(fit.theta_covariance).max(initial=0.0))  # in sds of theta
    if short < _SHORT or (fit.theta.size and moves < _MOVES):
        return []
    text = (
        f"the Gaussian falls short of the evidence by {short:.2g} nats: sds of groups and of coefficients may be too "
        "small"
    )
    return [Remark(text, "correction", LITTLE)]


def _of_spread(fit: FitTables) -> list[Remark]:
    """Remarks on counts whose variance about their means, or number of zeros, contradicts the family."""
    likelihood, target, name = fit.found.likelihood, fit.model.target, fit.model.response.name
    if likelihood.support != "count" or not (answers(fit, "predict") and answers(fit, "loo")):
        return []
    seen, rng = np.flatnonzero(target.seen > 0.0), np.random.default_rng(0)
    own, y = likelihood.take(seen), target.y[seen, None]
    eta = to_numpy(fit.posterior.sample(int(np.clip(_CELLS // max(1, seen.size), 20, _DRAWS)), rng))[:, seen].T
    mean, variance, simulated = own.mean_at(eta), own.variance_at(eta), own.draw(eta, rng)

    def compared(score: Callable[[np.ndarray], np.ndarray], least: float) -> tuple[float, float, float]:
        of_data, of_draws = score(y), score(simulated)
        more = of_data - of_draws  # of each draw
        return float(of_data.mean()), float(of_draws.mean()), float(more.mean() / max(more.std(), least))

    result, expected, far = compared(lambda each: ((each - mean) ** 2 / np.maximum(variance, 1.0)).mean(axis=0), 1e-9)
    share, rare, out = result / expected, float(ndtri(1.0 - _RARE)), []
    if abs(far) > rare and abs(share - 1.0) > _SPREAD:
        word = "overdispersed, intervals are too narrow" if far > 0 else "underdispersed, intervals are too wide"
        text = f"{name!r} varies about its mean {share:.2f} times as much as the family says (Pearson's statistic)"
        out.append(Remark(f"{text}: {word}", "spread", LITTLE))
    zeros, expected, far = compared(lambda each: (each == 0).sum(axis=0), 1.0)
    if far > rare and zeros > (1.0 + _SPREAD) * expected:
        out.append(Remark(f"{name!r} is 0 in {zeros:.0f} rows where the model expects {expected:.0f}", "zeros", LITTLE))
    return out


def _size(fit: FittedModel) -> int:
    """Number of rows plus number of latents."""
    return int(fit.model.target.y.size + to_numpy(fit.solution.posterior.latent_mean).size)


def _of_residuals(fit: FittedModel, known: set[str]) -> list[Remark]:
    """Remarks on tests of residuals that are rare under the model, except for topics that are in ``known``."""
    result = rare_tests(fit)
    rare, out = result[result["p_adjusted"] <= _RARE_TESTS], []
    for name, row in rare.iterrows():
        kind, *columns = str(name).split(" ", 1)
        beside = f"{row.statistic:.2g}; correct models have {row.lower:.2g} to {row.upper:.2g}"
        if kind == "uniformity":
            dispersion = result.loc["dispersion"]
            out += _of_predictions(fit, float(row.upper), float(dispersion.statistic / dispersion.expected))
        elif kind == "dispersion" and "spread" not in known:
            word = "more" if row.statistic > row.expected else "less"
            text = (
                f"rows vary about their predictions from the others {word} than the model says (mean square {beside})"
            )
            out.append(Remark(text, "dispersion", LITTLE))
        elif kind == "outliers":
            text = f"rows beyond 3 sds of their prediction from the others are many (share {beside})"
            out.append(Remark(text, "outliers", LITTLE))
        elif kind == "zeros" and not {"zeros", "spread"} & known:
            out.append(Remark(f"{fit.model.response.name!r} is 0 in {beside} rows", "zeros", LITTLE))
        elif kind == "link" and not any(str(other).startswith("curve") for other in rare.index):
            text = f"residuals are curved along the fixed part of the predictor (score {beside})"
            out.append(Remark(text, "link", LITTLE))
        elif kind == "spread" and not (columns == ["along fitted"] and rare.index.str.startswith("spread").sum() > 1):
            more = "grows" if row.statistic > row.expected else "falls"
            word, column = columns[0].split(" ", 1)
            how = f"{more} along" if word == "along" else "differs between levels of"
            what = "the fitted values" if column == "fitted" else column
            text = f"the spread of residuals {how} {what} ({'correlation' if word == 'along' else 'share'} {beside})"
            out.append(Remark(text, "changing spread", LITTLE))
        elif kind in ("curve", "slope"):
            text = f"residuals have a {kind} left {columns[0].replace('of', 'along', 1)} (score {beside})"
            out.append(Remark(text, kind, LITTLE))
        elif kind == "autocorrelation":
            out.append(Remark(f"residuals of neighbours in time are correlated ({beside})", kind, LITTLE))
    return out


def _of_predictions(fit: FittedModel, upper: float | None = None, dispersion: float | None = None) -> list[Remark]:
    """A remark if the PIT of rows, each predicted from the others, is not uniform.

    ``upper`` bounds Kolmogorov's distance of correct models; ``dispersion`` is the variance of y relative to theirs.
    """
    ends = pit(fit)
    below, upto = (np.asarray(end)[~np.isnan(ends.below)] for end in ends)
    score, root = RowResiduals(below, below, upto, below), float(np.sqrt(below.size))
    far, most, often = root * uniform_distance(score), _UNIFORM, "a hundred"
    if upper is not None:
        most, often = root * upper, "forty"
    if far < most:
        return []
    wide = np.maximum(upto - below, 1e-12)
    spread = float(((below + upto) / 2 - 0.5).var() + (wide**2).mean() / 12)
    how = "too certain: y spreads more than the model says" if spread > 1 / 12 else "too uncertain: y spreads less"
    if dispersion is not None and (12.0 * spread - 1.0) * (dispersion - 1.0) < _SAME_SPREAD**2:
        how = "of the right spread and of the wrong shape"
    rare = f"PIT, {far:.1f} from uniform; correct models have more than {most:.1f} once in {often}"
    text = f"predictions of rows from the others are {how} ({rare})"
    return [Remark(text, "prediction", LITTLE)]


def _of_rows(fit: FittedModel) -> list[Remark]:
    """A remark on rows whose eta is far from its prediction by the other rows."""
    if not answers(fit, "loo") or not answers(fit, "predict"):
        return []
    result, kept = fit.loo(), fit.model.kept
    wide = to_numpy(result.variance)[kept]
    wide = wide if wide.ndim < 3 else np.diagonal(wide, axis1=1, axis2=2)
    pull = np.abs(to_numpy(result.mean)[kept] - to_numpy(fit.posterior.mean)) / np.sqrt(wide)
    pull = np.nan_to_num(pull if pull.ndim == 1 else pull.max(axis=1))
    most = float(ndtri(1.0 - _RARE / (2.0 * pull.size)))
    far = [k for k in np.argsort(-pull) if pull[k] > most]
    if not far:
        return []
    names = ", ".join(f"{fit.model.data_index[kept[k]]} (by {pull[k]:.1f} sds)" for k in far[:_SHOWN])
    text = (
        f"{len(far)} rows move their own predictor by over {most:.1f} sds of its prediction from the others: {names} "
        "most"
    )
    if len(far) == 1:
        text = f"the row {names} moves its own predictor from its prediction by the others"
    return [Remark(text, "rows", NOTE)]

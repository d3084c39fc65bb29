"""What to worry about in a fit, worst first: ``fit.check()``.

The sentences of ``remarks.py`` are of the data and of what the prior decides; here are those of the answers themselves.

prior         theta moves when the scale of its prior is doubled: over the points that were integrated over by
              w_k p'(theta_k) / p(theta_k), at the mode by the curvature, C (log p' - log p)'
correction    large where the Gaussian is used, or not to be trusted; k-hat is that of draws in its place
prediction    where y lies in its prediction from the others (PIT) is not uniform: by Kolmogorov's distance
spread        counts vary about E[y | eta] otherwise than the family says, or have more zeros: the sum of
              (y - E y)^2 / Var y and the number of zeros at draws of eta, beside those of counts drawn there
rows          of which one moves its own eta by far more sds of its prediction from the others than is likely
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
from .row_criteria import pit

if TYPE_CHECKING:
    import pandas as pd

    from .fit_tables import FitTables
    from .fitted import FittedModel

WRONG, LITTLE, NOTE = 3, 2, 1  # answers may be wrong; the data say little; worth knowing
_MOVES = 0.3  # sds of theta, from which on a prior decides
_MOVES_SD = 0.1  # of log sd or log range, below which a prior hardly matters
_SHORT = 0.5  # nats of the evidence, from which on a Gaussian is short of it
_STEEP = 3.0  # what is short grows by about this power of the sd of groups (2 to 4)
_UNIFORM = 1.63  # sqrt(N) times Kolmogorov's distance: one in a hundred right models has more
_RARE = 0.01  # share of right models in which a row is named, or a spread
_SPREAD = 0.1  # share of the variance of counts, from which on more or less of it is said
_DRAWS, _CELLS = 100, 4_000_000  # data sets that are drawn, and numbers in all of them
_CELLS_AT_ONCE = 400_000  # up to which a summary draws them
_SHOWN = 3  # rows that are named
CURES = {
    "search": "n_restarts=5 starts elsewhere; another prior, or fewer terms",
    "answers": "state priors of the hyperparameters, or hold the answers against MCMC",
    "correction": "accuracy='high', or fit.solution.importance()",
    "prior": "state the prior knowingly: priors={...}; fit.priors has all of them",
    "separation": "state a prior of the coefficient, or leave its column out",
    "groups": "leave the term out, or make its levels fewer",
    "response": "look at y",
    "prediction": "fit.plot_check('pit') shows how; another family, or a term that is missing",
    "spread": "family='negative-binomial', of trials 'beta-binomial'; or an effect of every row, (1|row)",
    "zeros": "family='zero-inflated-poisson' or 'negative-binomial', or a hurdle",
    "rows": "look at these rows; a family with more spread, as student-t, negative-binomial or beta-binomial",
}


class FitCheck:
    """What ``fit.check()`` returns: it prints as a list, the worst first.

    Attributes
    ----------
    remarks : list of Remark
    """

    def __init__(self, found: list[Remark]) -> None:
        self.remarks = sorted(dict.fromkeys(found), key=lambda remark: -remark.severity)

    @property
    def sentences(self) -> list[str]:
        """The worst first."""
        return [f"{_begun(remark)}." for remark in self.remarks]

    @property
    def first(self) -> str:
        """The worst in one line, and how many more there are."""
        if not self.remarks:
            return "check: nothing seen yet; fit.check() also predicts every row from the others"
        worst, more = self.remarks[0], len(self.remarks) - 1
        word = "CHECK" if worst.severity == WRONG else "check"
        return f"{word}: {worst}" + (f"; fit.check() has {more} more" if more else "")

    def to_frame(self) -> pd.DataFrame:
        """A row each: name, severity (3: answers may be wrong, 2: the data say little, 1: a note), sentence, cure."""
        import pandas as pd

        cures = [CURES.get(remark.name, "") for remark in self.remarks]
        columns = {"name": [r.name for r in self.remarks], "severity": [r.severity for r in self.remarks]}
        return pd.DataFrame({**columns, "sentence": self.sentences, "what_to_do": cures})

    def __len__(self) -> int:
        return len(self.remarks)

    def __iter__(self) -> Iterator[str]:
        return iter(self.sentences)

    def __repr__(self) -> str:
        if not self.remarks:
            return "nothing to worry about"
        cures = [f" ({CURES[r.name]})" if r.name in CURES else "" for r in self.remarks]
        return "\n".join(f"{i + 1}. {text}{cure}" for i, (text, cure) in enumerate(zip(self, cures, strict=True)))


def _begun(sentence: str) -> str:
    """With a capital, unless it begins with the name of a term or of a part."""
    first = sentence.split(" ", 1)[0]
    return f"{sentence[0].upper()}{sentence[1:]}" if first.isalpha() else sentence


def at_once(fit: FitTables) -> FitCheck:
    """What is known of a fit without further work, and of few rows how counts are spread."""
    few = not fit.parts and _DRAWS * fit.model.target.y.size <= _CELLS_AT_ONCE
    return FitCheck([*_known(fit), *(_of_spread(fit) if few else [])])


def _known(fit: FitTables) -> list[Remark]:
    """What is known of a fit without further work."""
    if fit.parts:
        return [Remark(f"{name}: {r}", r.name, r.severity) for name, p in fit.parts.items() for r in _known(p)]
    found = [Remark(doubt, "answers", WRONG) for doubt in fit.engine.doubts(fit)]
    if not fit.converged:
        found.append(Remark(f"the fit did not converge: {fit.found.status}", "search", WRONG))
    if fit.answers is not None and not fit.answers.marginals_trusted:
        found.append(Remark(fit.answers.status, "correction", WRONG))
    own = fit.engine.keeps_rows
    of_data = [*remarks.of_rows(fit.model), *remarks.of_family(fit.model)] if own else []
    found += [*of_data, *fit.remarks, *remarks.undetermined(fit)]
    return [*found, *(_moved_by_priors(fit) if own else [])]


def in_full(fit: FittedModel) -> FitCheck:
    """The same, with what leave-one-out and a correction say."""
    found = _known(fit)
    for name, part in fit.parts.items() or {"": fit}.items():
        more = [*_short_of_evidence(part), *_of_spread(part), *_of_predictions(part), *_of_rows(part)]
        found += [Remark(f"{name}: {r}" if name else r, r.name, r.severity) for r in more]
    return FitCheck(found)


def _moved_by_priors(fit: FitTables) -> list[Remark]:
    """Of sds and ranges whose prior decides."""
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
            here, variance = float(fit.theta[i]), float(fit.theta_covariance[i, i])
            there = here + variance * gain(here)[1]
        else:
            at, w = over.thetas[:, i], over.weights
            moved = w * np.exp([gain(theta)[0] for theta in at])
            here, there = float(w @ at), float(moved @ at / moved.sum())
            variance = float(w @ (at - here) ** 2)
        if variance > 0.0 and abs(there - here) > max(_MOVES * np.sqrt(variance), _MOVES_SD):
            values = f"{h.value(there):.3g} instead of {h.value(here):.3g}"
            text = f"the prior of the {h.name} of {term.name} decides: with twice its scale it would be {values}"
            out.append(Remark(text, "prior", LITTLE))
    return out


def _short_of_evidence(fit: FittedModel) -> list[Remark]:
    """Where the Gaussian is used, and a correction says that it falls short."""
    plain = fit.integrated is None or fit.integrated.evidence == "elbo"
    if (
        not plain
        or fit.answers is not None
        or fit.found.likelihood.objective.conjugate
        or not answers(fit, "corrected")
    ):
        return []
    found = fit.solution.corrected()
    short = float(found.log_evidence - fit.solution.elbo)
    if found.method != "clusters" and not found.trusted:
        return [Remark(f"a correction is not to be trusted: {found.status}", "correction", LITTLE)]
    moves = _STEEP * short * np.sqrt(np.diag(fit.theta_covariance).max(initial=0.0))  # sds, of theta
    if short < _SHORT or (fit.theta.size and moves < _MOVES):
        return []
    text = (
        f"the Gaussian falls short of the evidence by {short:.2g} nats: sds of groups and of coefficients may be small"
    )
    return [Remark(text, "correction", LITTLE)]


def _of_spread(fit: FitTables) -> list[Remark]:
    """Whether counts vary about their means, and are 0, as the family says."""
    likelihood, target, name = fit.found.likelihood, fit.model.target, fit.model.response.name
    if likelihood.support != "count" or not (answers(fit, "predict") and answers(fit, "loo")):
        return []
    seen, rng = np.flatnonzero(target.seen > 0.0), np.random.default_rng(0)
    own, y = likelihood.take(seen), target.y[seen, None]
    eta = to_numpy(fit.posterior.sample(int(np.clip(_CELLS // max(1, seen.size), 20, _DRAWS)), rng))[:, seen].T
    mean, variance, made = own.mean_at(eta), own.variance_at(eta), own.draw(eta, rng)

    def compared(score: Callable[[np.ndarray], np.ndarray], least: float) -> tuple[float, float, float]:
        of_data, of_draws = score(y), score(made)
        more = of_data - of_draws  # of each draw
        return float(of_data.mean()), float(of_draws.mean()), float(more.mean() / max(more.std(), least))

    found, expected, far = compared(lambda each: ((each - mean) ** 2 / variance).mean(axis=0), 1e-9)
    share, rare, out = found / expected, float(ndtri(1.0 - _RARE)), []
    if abs(far) > rare and abs(share - 1.0) > _SPREAD:
        word = "overdispersed, intervals are too narrow" if far > 0 else "underdispersed, intervals are too wide"
        text = f"{name!r} varies about its mean {share:.2f} times as much as the family says (Pearson's statistic)"
        out.append(Remark(f"{text}: {word}", "spread", LITTLE))
    zeros, expected, far = compared(lambda each: (each == 0).sum(axis=0), 1.0)
    if far > rare and zeros > (1.0 + _SPREAD) * expected:
        out.append(Remark(f"{name!r} is 0 in {zeros:.0f} rows where the model expects {expected:.0f}", "zeros", LITTLE))
    return out


def _of_predictions(fit: FittedModel) -> list[Remark]:
    """Whether each row lies in its prediction from the others as often as it should."""
    if not answers(fit, "loo") or fit.model.reduction.predictors(fit.model):
        return []
    ends = pit(fit)
    below, upto = (np.asarray(end)[~np.isnan(ends.below)] for end in ends)
    at = np.linspace(0.0, 1.0, 201)[1:-1]
    wide = np.maximum(upto - below, 1e-12)
    share = np.clip((at[:, None] - below) / wide, 0.0, 1.0).mean(axis=1)
    far = float(np.sqrt(below.size) * np.abs(share - at).max())
    if far < _UNIFORM:
        return []
    spread = float(((below + upto) / 2 - 0.5).var() + (wide**2).mean() / 12)
    how = "too sure: y spreads more than the model says" if spread > 1 / 12 else "not sure enough: y spreads less"
    rare = f"PIT, {far:.1f} from uniform; right models have more than {_UNIFORM} once in a hundred"
    text = f"predictions of rows from the others are {how} ({rare})"
    return [Remark(text, "prediction", LITTLE)]


def _of_rows(fit: FittedModel) -> list[Remark]:
    """Rows that pull their own eta far from where the others have it."""
    if not answers(fit, "loo") or not answers(fit, "predict"):
        return []
    found, kept = fit.loo(), fit.model.kept
    wide = to_numpy(found.variance)[kept]
    wide = wide if wide.ndim < 3 else np.diagonal(wide, axis1=1, axis2=2)
    pull = np.abs(to_numpy(found.mean)[kept] - to_numpy(fit.posterior.mean)) / np.sqrt(wide)
    pull = np.nan_to_num(pull if pull.ndim == 1 else pull.max(axis=1))
    most = float(ndtri(1.0 - _RARE / (2.0 * pull.size)))
    far = [k for k in np.argsort(-pull) if pull[k] > most]
    if not far:
        return []
    names = ", ".join(f"{fit.model.data_index[kept[k]]} (by {pull[k]:.1f} sds)" for k in far[:_SHOWN])
    text = (
        f"{len(far)} rows move their own predictor by over {most:.1f} sds from where the others have it: {names} most"
    )
    if len(far) == 1:
        text = f"the row {names} moves its own predictor from where the others have it"
    return [Remark(text, "rows", NOTE)]

"""The page of ``logistic``: two bounds compared with the truth, the coefficients, and the timings."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..plots import plot_forest, plot_race
from ..plots.base import DASHES, GREY, MARKERS, PALETTE, new_figure, quiet
from ..report import Picture, Pre, Row, Section, Table
from .logistic import INTERCEPT_VARIANCE, LogisticStudy
from .race import WITHIN, finishers, methods_table, race_lines, race_numbers, race_table
from .reproduce import Result

WIDTH = 1.959964
WORDS = {
    "npreg": "pregnancies",
    "glu": "glucose",
    "bp": "blood pressure",
    "skin": "skin fold",
    "bmi": "body mass index",
    "ped": "pedigree",
    "age": "age",
}


def page(found: LogisticStudy) -> Result:
    """Numbers, figures and sections."""
    paper, tilted, truth = found.learned["log-sum"], found.learned["tilted"], found.truth
    best = found.optimum.elbo
    short = {name: truth.log_evidence - fit.log_evidence for name, fit in found.fits.items()}
    return Result(
        name="logistic",
        title="Bayesian logistic regression on the Pima data",
        sections=[_bounds(found), _posteriors(found), _race_section(found)],
        summary=[
            f"log-sum bound: elbo {paper.best:.4f} at variance {paper.variance:.3g}, {paper.bits:.4f} bits on test",
            f"tilted bound:  elbo {tilted.best:.4f} at variance {tilted.variance:.3g}, {tilted.bits:.4f} bits on test",
            f"below log p(y) = {truth.log_evidence:.3f} +- {truth.error:.3f} (importance sampling, variance "
            f"{found.common:.3g}): log-sum {short['log-sum']:.2f}, tilted {short['tilted']:.2f} nats",
        ],
        numbers={
            "names": found.design.names,
            "variances": found.variances,
            "methods": {
                one.name: {
                    "log_evidence_on_grid": one.evidence,
                    "variance": one.variance,
                    "log_evidence": one.best,
                    "elbo": one.solution.elbo,
                    "gap": one.solution.gap,
                    "certificate": one.solution.certificate,
                    "bits": one.bits,
                    "accuracy": one.accuracy,
                    "mean": one.solution.posterior.latent_mean,
                    "sd": np.sqrt(one.solution.posterior.latent_variance),
                }
                for one in found.learned.values()
            },
            "importance_sampling": {
                "log_evidence_on_grid": [s.log_evidence for s in found.sampled],
                "error_on_grid": [s.error for s in found.sampled],
                "variance": found.exact_variance,
                "log_evidence": found.exact.log_evidence,
                "error": found.exact.error,
                "bits": found.exact_bits,
                "accuracy": found.exact_accuracy,
            },
            "common_variance": {
                "variance": found.common,
                "log_evidence": {name: fit.log_evidence for name, fit in found.fits.items()},
                "mean": {name: fit.posterior.latent_mean for name, fit in found.fits.items()},
                "sd": {name: np.sqrt(fit.posterior.latent_variance) for name, fit in found.fits.items()},
                "truth": {
                    "log_evidence": truth.log_evidence,
                    "error": truth.error,
                    "mean": truth.mean,
                    "sd": truth.sd,
                    "draws": truth.draws,
                    "effective": truth.effective,
                },
            },
            "elbo_without_local_bound": found.without_bound,
            "optimum": {"elbo": best, "gap": found.optimum.gap},
            "cap": found.cap,
            "race": race_numbers(found.entries, best),
        },
    )


def _evidence(found: LogisticStudy) -> Any:
    """Log evidence against the prior variance for each method, and below it the error of each."""
    figure = new_figure(5.0, 5.8)
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(1.1, 1))
    truth = np.array([s.log_evidence for s in found.sampled])
    error = np.array([s.error for s in found.sampled])
    top.plot(found.variances, truth, color=GREY, linewidth=5, alpha=0.45, label="importance sampling")
    bottom.fill_between(found.variances, 1e-4, 2 * error, color=GREY, alpha=0.3, linewidth=0)
    for k, one in enumerate(found.learned.values()):
        style: dict[str, Any] = {"color": PALETTE[k], "linestyle": DASHES[k % len(DASHES)], "marker": MARKERS[k]}
        word = one.name + (" bound" if one.name in ("log-sum", "tilted") else "")
        top.plot(found.variances, one.evidence, markevery=[int(np.argmax(one.evidence))], label=word, **style)
        bottom.plot(found.variances, np.abs(truth - one.evidence), markevery=max(1, truth.size // 6), **style)
    top.set_ylim(truth.max() - 8.5, truth.max() + 0.7)
    top.set_ylabel("log evidence (nats)")
    bottom.set_yscale("log")
    bottom.set_ylim(1e-3, 20)
    bottom.set_xscale("log")
    ticks = [0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5]
    bottom.set_xticks(ticks, labels=[f"{t:g}" for t in ticks])
    bottom.set_xlabel("prior variance of a weight")
    bottom.set_ylabel("distance from the truth (nats)")
    figure.legend(frameon=False, fontsize=9, loc="outside lower center", ncols=3)
    for ax in (top, bottom):
        quiet(ax)
    return figure


def _weights(found: LogisticStudy) -> Any:
    fits = [found.learned[name] for name in ("log-sum", "tilted")]
    mean = np.stack([one.solution.posterior.latent_mean for one in fits] + [found.exact.mean])
    sd = np.stack([np.sqrt(one.solution.posterior.latent_variance) for one in fits] + [found.exact.sd])
    return plot_forest(
        [WORDS.get(name, name) for name in found.design.names],
        mean,
        mean - WIDTH * sd,
        mean + WIDTH * sd,
        labels=["log-sum", "tilted", "importance sampling"],
        label="log odds a standard deviation",
    ).figure


def _bounds(found: LogisticStudy) -> Section:
    design, truth = found.design, found.truth
    rows = [
        [
            one.name + (" bound" if name in ("log-sum", "tilted") else ""),
            f"{one.best:.3f}",
            f"{one.variance:.3g}",
            f"{one.bits:.4f}",
            f"{100 * one.accuracy:.1f} %",
            f"{one.solution.gap:.1e}" if one.solution.certificate == "duality" else "none",
        ]
        for name, one in found.learned.items()
    ]
    sampled = [
        "importance sampling",
        f"{found.exact.log_evidence:.3f}",
        f"{found.exact_variance:.3g}",
        f"{found.exact_bits:.4f}",
        f"{100 * found.exact_accuracy:.1f} %",
        "none",
    ]
    header = ["method", "log evidence", "learned variance", "test bits", "test accuracy", "certificate (nats)"]
    short = {name: truth.log_evidence - fit.log_evidence for name, fit in found.fits.items()}
    loose = {name: value - found.fits[name].elbo for name, value in found.without_bound.items()}
    base = float(np.mean(design.y))
    coin = float(-np.mean(np.log2(np.where(design.y_test == 1, base, 1 - base))))
    return Section(
        "Two bounds and the truth",
        [
            f"{design.data.description}: {design.y.size} rows to fit, {design.y_test.size} to test, the split of the "
            "data's authors. The model is the first row of the paper's Table 1, the likelihood the Bernoulli column of "
            "its Table 2. The paper reports no numbers for it, so there are none to compare with.",
            Pre(
                "diabetes_n ~ Bernoulli(1 / (1 + exp(-eta_n))),   eta_n = intercept + x_n' weights\n"
                "x standardised by the training rows\n"
                f"intercept ~ N(0, {INTERCEPT_VARIANCE:g}),   weights ~ N(0, v), v by the largest evidence on a grid"
            ),
            "E[log(1 + exp(eta))] under a Gaussian has no closed form, so it is bounded: by the paper's log-sum bound, "
            "or by the tilted one, which is tighter and also gives one convex dual with a certificate. With 8 latents "
            "the evidence can be computed: importance sampling from a Student t at the posterior mode, "
            f"{truth.draws:,} draws worth {truth.effective:,.0f} independent ones.",
            Table(header, [*rows, sampled], "Each method at the variance its own log evidence prefers"),
            f"At v = {found.common:.3g}, log p(y) = {truth.log_evidence:.3f} with standard error {truth.error:.4f}. "
            f"The log-sum bound lies {short['log-sum']:.3f} nats below it, the tilted bound {short['tilted']:.3f}. Of "
            f"these, {loose['log-sum']:.3f} and {loose['tilted']:.3f} are the looseness of the local bound at its own "
            "q, by quadrature; the rest is that q is not the posterior. Laplace's and EP's own estimates, which are no "
            f"bounds, are off by {-short['Laplace']:+.3f} and {-short['EP']:+.3f}. Bits are the mean of -log2 p(y) "
            f"over the test rows; the training rate for everyone costs {coin:.4f}.",
            Row(
                [
                    Picture(
                        _evidence(found),
                        "Log evidence against the prior variance: importance sampling, EP, Laplace, the two bounds",
                        "Log evidence by prior variance, a mark at each curve's maximum; below, how far each is from "
                        "the sampled truth (grey: its two standard errors). The log-sum bound is the looser the wider "
                        "the posterior, which favours small variances.",
                        file="evidence",
                    ),
                    Picture(
                        _weights(found),
                        "Intercept and seven weights with 95 % intervals under the log-sum bound, the tilted bound and "
                        "importance sampling",
                        "Coefficients with 95 % intervals, each method at its own variance.",
                        file="weights",
                    ),
                ]
            ),
        ],
    )


def _posteriors(found: LogisticStudy) -> Section:
    truth = found.truth
    header = ["coefficient", *found.fits, "importance sampling"]
    moments = [(fit.posterior.latent_mean, np.sqrt(fit.posterior.latent_variance)) for fit in found.fits.values()]
    moments.append((truth.mean, truth.sd))
    rows = [
        [WORDS.get(name, name), *[f"{mean[i]:.3f} ({sd[i]:.3f})" for mean, sd in moments]]
        for i, name in enumerate(found.design.names)
    ]
    rows.append(
        ["log evidence", *[f"{fit.log_evidence:.3f}" for fit in found.fits.values()], f"{truth.log_evidence:.3f}"]
    )
    ratio = {name: np.sqrt(fit.posterior.latent_variance) / truth.sd for name, fit in found.fits.items()}
    off = {name: np.abs(fit.posterior.latent_mean - truth.mean) / truth.sd for name, fit in found.fits.items()}
    rows.append(["sd / true sd", *[f"{r.min():.2f} to {r.max():.2f}" for r in ratio.values()], "1"])
    rows.append(["largest error of a mean, in sd", *[f"{o.max():.2f}" for o in off.values()], "0"])
    clear = {name: np.abs(mean) > WIDTH * sd for name, (mean, sd) in zip([*found.fits, "truth"], moments, strict=True)}
    wrong = [WORDS.get(n, n) for n, a, b in zip(found.design.names, clear["log-sum"], clear["truth"]) if a and not b]
    consequence = f" They leave out zero for {' and '.join(wrong)}, where the true ones do not." if wrong else ""
    return Section(
        "The posteriors side by side",
        [
            "All at one prior variance, so that only the approximation differs.",
            Table(header, rows, f"Posterior mean (standard deviation) at v = {found.common:.3g}"),
            "The log-sum bound charges for variance at the full slope of log(1 + e^eta), lam = tau, where the "
            f"curvature is tau (1 - tau): its standard deviations are {ratio['log-sum'].min():.2f} to "
            f"{ratio['log-sum'].max():.2f} times the true ones, against {ratio['tilted'].min():.2f} to "
            f"{ratio['tilted'].max():.2f} for the tilted bound. Its 95 % intervals are too narrow.{consequence}",
        ],
    )


def _race_section(found: LogisticStudy) -> Section:
    best, (n, L) = found.optimum.elbo, found.design.W.shape
    newton = found.entries[0]
    covariances = L * (L + 1) // 2
    ends = finishers(found.entries)
    spread = max(abs(solution.elbo - best) for solution in ends)
    return Section(
        "The race",
        [
            f"The paper's bound at its own variance, {found.learned['log-sum'].variance:.3g}; the optimum, {best:.6f}, "
            f"is certified to {found.optimum.gap:.1e} nats. Every method starts near the prior's mean, which suits the "
            f"rivals. With few features the primal is no handicap: it has {L} means and {covariances} entries of V, "
            f"{L + covariances} variables, fewer than the dual's {n}. The paper's count of variables speaks for the "
            "dual only where L (L + 3) / 2 exceeds N. These times are milliseconds and mostly overhead of the "
            "language; differences of less than a factor of two mean nothing.",
            race_table(found.entries, best, "Time to come within 0.1 and 0.001 nat of the optimum; fastest of 3 runs"),
            Picture(
                plot_race(race_lines(found.entries), best).figure,
                "Distance from the optimum against seconds for every method, both on log axes",
                "Nats below the certified optimum. Mean field, the banded factor, Laplace and EP do not reach it: they "
                "search a smaller family or optimise something else, and are judged by the same log-sum bound.",
                file="race",
            ),
            f"The dual Newton is within {WITHIN[-1]:g} nat after {newton.iterations_to(best - WITHIN[-1]):.0f} "
            f"iterations. The {len(ends)} methods of this bound that were not capped came within {spread:.1e} nats of "
            "it (they may stop at 1e-4). A low place of Laplace and EP on this scale speaks about the log-sum bound, "
            "not about them: see the table above.",
            methods_table(found.entries),
        ],
    )

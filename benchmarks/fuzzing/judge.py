"""The verdict on a solution: what it says, against the independent optimum.

false "converged": the elbo is off by more than the tol asked, the best ELBO lies above elbo_upper, a mean
or variance is further from the best q's than the gap allows, or something is not a number.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal as D
from typing import Any

import numpy as np

from .decimals import ZERO, eliminate, exact, identity, set_digits
from .optimum import Model, Point, optimum
from .witness import disagreement

_ROUNDING = 1e-11  # of elbo, relative: what a sum in double precision may lose, a tenth of the smallest tol asked
_MOMENTS = 1e-4  # of the posterior's sds: the same for its means and variances


@dataclass
class Verdict:
    """``said``: converged, not converged, refused, crashed; ``faults``: what is wrong, in words."""

    said: str
    faults: list[str] = field(default_factory=list)
    error: float = 0.0  # of the elbo, relative to max(1, |best|), in units of the tol asked
    moments: float = 0.0  # of means and variances, in units of what the gap allows
    above: float = 0.0  # best ELBO beyond elbo_upper, relative
    best: float = float("nan")
    judged: bool = True
    reason: str = ""  # the library's own words

    @property
    def false_converged(self) -> bool:
        return self.said == "converged" and bool(self.faults)

    @property
    def wrong(self) -> bool:
        """A false "converged", or an exception that is no sentence."""
        return self.false_converged or self.said == "crashed"


def judge(model: Model, solution: Any, tol: float, log_concave: bool, doubt: bool = False) -> Verdict:
    """Compare what a solution says with the independent optimum; in doubt, the judge's integrals are repeated too.

    They are repeated as well before a fit is accused.
    """
    set_digits()
    out = Verdict("converged" if solution.converged else "not converged")
    post = solution.posterior
    h, rho = np.asarray(post.mean, float).ravel(), np.asarray(post.variance, float).ravel()
    latent = np.asarray(post.latent_mean, float).T.ravel()
    scale = max(1.0, abs(solution.elbo))
    if np.isnan([solution.elbo, solution.elbo_upper, solution.gap]).any():
        out.faults.append("a NaN among elbo, elbo_upper, gap")
    if solution.elbo_upper < solution.elbo or solution.gap < 0:
        out.faults.append("elbo_upper below elbo")
    if not (np.isfinite(h).all() and np.isfinite(rho).all() and np.isfinite(latent).all()):
        out.faults.append("a mean or variance that is not finite")
    elif (rho < 0).any() or (np.asarray(post.latent_variance, float) < 0).any():
        out.faults.append("a negative variance")
    point = optimum(model, h, rho, 60 if solution.converged else 150 // len(h))
    if point is None:
        if out.said == "converged":
            raise ArithmeticError("no optimum found")
        out.judged = False
        return out
    best, missing = point.elbo, point.missing()
    out.best = float(best)
    scale = max(1.0, abs(out.best))
    if not missing <= D(0.01 * tol) * max(D(1), abs(best)):
        if out.said == "converged":
            raise ArithmeticError(f"no optimum found: {float(missing):.1e} may be missing")
        out.judged = False
        return out
    if not np.isfinite(solution.elbo):
        return out
    if not log_concave and (np.abs(h - point.h.astype(float)) > np.sqrt(np.maximum(rho, 0.0))).any():
        out.judged = False  # another stationary point: none was promised to be the best
        return out
    short = float(best - D(float(solution.elbo)))
    out.error = abs(short) / scale / tol
    if out.said == "converged" and out.error > 1.01 + _ROUNDING / tol:
        out.faults.append(f"elbo off by {-short:.3g} (relative {abs(short) / scale:.1e}, tol {tol:.0e})")
    slack = max(_ROUNDING, 0.01 * tol)
    if log_concave and np.isfinite(solution.elbo_upper):
        out.above = float(best - D(float(solution.elbo_upper))) / scale
        if out.above > slack:
            out.faults.append(f"best ELBO above elbo_upper by {out.above:.1e} relative")
    room = max(tol, solution.gap / scale) if np.isfinite(solution.gap) else tol  # elbo itself may be rounded upwards
    if -short / scale > 1.01 * room + _ROUNDING:
        out.faults.append(f"elbo above the best by {-short / scale:.1e} relative")
    if (doubt or out.faults) and disagreement(point) > 1e-15:
        raise ArithmeticError("the judge's integrals are wrong")
    if out.said != "converged":
        return out
    latent_variance = np.asarray(post.latent_variance, float).T.ravel()
    gap = solution.gap if np.isfinite(solution.gap) else tol * scale
    check_moments(out, point, (h, rho, latent, latent_variance), gap)
    return out


def check_moments(out: Verdict, point: Point, reported: tuple[Any, Any, Any, Any], gap: float) -> None:
    """A q that misses the best ELBO by ``gap`` lies within sqrt(2 gap) sds of the best one, sds of the ELBO's peak.

    For given rho the best V leaves -KL with curvature -(Vt o Vt)^-1/2 in rho, so in (h, rho) the ELBO peaks with

        A = [[S^-1 + f_hh, f_hr], [f_rh, (Vt o Vt)^-1/2 + f_rr]]

    The peak can be much wider than q: under a log-sum bound far more so. The entropy alone peaks in V, relative to V.
    Rounding may move means by 1e-4 sds of q, and its variances by as much; means beyond that are held against the ELBO.
    """
    h, rho, latent_mean, latent_variance = reported
    model, S, eye = point.model, point.model.S, identity(len(h))
    square = 2 * point.Vt * point.Vt
    inner = eliminate(eye + square.dot(point.rr), square)
    K = point.hh - point.hr.dot(inner).dot(point.hr.T)  # the curvature left in h once rho follows
    mean_peak = eliminate(eye + S.dot(K), S)
    turned = inner.dot(point.hr.T)
    rho_peak = inner + turned.dot(mean_peak).dot(turned.T)
    T = model.Sigma.dot(model.W.T)

    def latents(K: Any) -> Any:
        """The diagonal of (Sigma^-1 + W' K W)^-1."""
        return np.diag(model.Sigma) - (T.dot(eliminate(eye + K.dot(S), K)) * T).sum(axis=1)

    z, z_variance = model.mu - T.dot(point.beta), latents(eye * point.lam)
    room = (5.0 + 50.0 * np.sqrt(gap)) * np.sqrt(2.0 * gap)
    worst = []
    largest = 1e-12 * float(max(np.abs(z), default=ZERO))
    spread = 1e-15 * float(max(np.diag(model.Sigma)))  # a prior variance less what the data took of it
    taken = max(1e-12 * float(max(point.rho)), 1e-15 * float(max(np.diag(S))))
    for what, got, want, peak, own, floor in (
        ("mean", h, point.h, np.diag(mean_peak), point.rho, 1e-12 * float(max(np.abs(point.h)))),
        ("variance", rho, point.rho, np.diag(rho_peak), point.rho * point.rho, taken),
        ("latent mean", latent_mean, z, latents(K), z_variance, largest),
        ("latent variance", latent_variance, z_variance, 4 * z_variance**2, z_variance**2, spread),
    ):
        for a, b, v, w in zip(exact(got), want, peak, own, strict=True):
            width = room * float(max(v, ZERO).sqrt()) + _MOMENTS * float(max(w, ZERO).sqrt()) + floor
            miss = abs(float(a - b))
            worst.append((miss / width if width > 0 else (np.inf if miss > 1e-300 else 0.0), what))
    if any(off > 1.0 and what.endswith("mean") for off, what in worst) and is_as_good(point, h, latent_mean, gap):
        worst = [(off, what) for off, what in worst if not what.endswith("mean")]
    out.moments, what = max(worst)
    if out.moments > 1.0:
        out.faults.append(f"a {what} off by {out.moments:.1e} times what its gap {gap:.1e} allows")


def is_as_good(point: Point, h: Any, latent_mean: Any, gap: float) -> bool:
    """Whether the means reported, with the best variances, miss the best ELBO by no more than the gap.

    Away from its top a peak can be flatter than its curvature says: noise with straight sides whose slopes cancel.
    """
    model, d = point.model, point.model.mu - exact(latent_mean)
    there = model.mt - model.W.dot(d)
    try:
        quadratic = d.dot(eliminate(model.Sigma, d[:, None])[:, 0])
        value = model.terms(there, point.rho)[0]
    except ArithmeticError:  # Sigma is singular
        return False
    near = np.abs(exact(h) - there) <= D("1e-9") * max(np.abs(there))
    missing = (quadratic - point.beta.dot(model.S.dot(point.beta))) / 2 + value - point.value
    return bool(np.all(near)) and missing <= D(1.01 * gap)

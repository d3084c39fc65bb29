"""A disease map: deaths from cancer of the oral cavity in the districts of Germany, 1986-90.

    Y_i ~ Poisson(E_i exp(eta_i)),   eta = intercept + u + v
    u ~ N(0, L^+ / k_u)   neighbours are alike: L the Laplacian of the map, u sums to zero in each connected part
    v ~ N(0, I / k_v)     a district's own deviation
    intercept ~ N(0, 10)

(Besag, York and Mollie 1991.) The relative risk exp(eta_i) is log-normal under q. (k_u, k_v) is the point of a grid
with the largest elbo; the final fit starts afresh so that its trace shows the two bounds meeting.

The same map is one formula over a data frame, ``FORMULA``, which the demo shows first: its prior is the same in other
parameters (one sd, and the share of it that neighbours have in common), learned rather than tried on a grid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import sparse
from scipy.special import ndtr

from . import gmrf
from .datasets import Germany, load_germany
from .inference import infer
from .likelihoods import Poisson
from .models import FittedModel
from .models import fit as fit_formula
from .models.report_page import sections as sections_of
from .plots import plot_caterpillar, plot_grid, plot_map, plot_trace
from .priors import SparsePrecision
from .report import Picture, Pre, Row, Section, Table, write_report
from .solvers import Solution

INTERCEPT_VARIANCE = 10.0
K_U = (4.0, 6.3, 10.0, 16.0, 25.0, 40.0, 63.0)
K_V = (16.0, 40.0, 100.0, 250.0, 630.0, 1600.0, 4000.0)
K_V_ALONE = (2.5, 4.0, 6.3, 10.0, 16.0, 25.0, 40.0)  # without neighbours v carries all the variation
FORMULA = "deaths ~ bym2(district)"
_CODE = f"""frame = pandas.DataFrame({{"district": data.key, "deaths": data.Y, "expected": data.E}})
fit = fenchel.fit("{FORMULA}", frame, family="poisson", exposure="expected",
                  graphs={{"district": data.adjacency}}, levels={{"district": data.key}})
fit.summary(), fit.effects["district"], fit.plot_map("district", data.polygons), fit.report("report.html")"""
Tick = Callable[[str], None]


@dataclass(frozen=True)
class DiseaseMap:
    """The fitted map. Arrays over districts are (N,), those over the grid (len(K_U), len(K_V)).

    risk, lower, upper : posterior mean and 95 % interval of the relative risk
    risk_sd : its posterior standard deviation
    excess : posterior probability that the relative risk is above 1
    spatial_share : part of the variance of the fitted log risks that follows the neighbours, between 0 and 1
    alone : the same model without neighbours, at its own best k_v
    """

    data: Germany
    solution: Solution
    alone: Solution
    k_u: float
    k_v: float
    evidence: np.ndarray
    risk: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    risk_sd: np.ndarray
    excess: np.ndarray
    spatial_share: float

    def order(self) -> np.ndarray:
        """Districts from the largest relative risk to the smallest."""
        return np.argsort(-self.risk)

    def table(self, count: int = 10) -> Table:
        """The districts with the largest posterior relative risk."""
        data = self.data
        rows = [
            [
                data.key[i],
                data.state[i],
                f"{data.Y[i]:.0f}",
                f"{data.E[i]:.1f}",
                f"{data.Y[i] / data.E[i]:.2f}",
                f"{self.risk[i]:.2f}",
                f"{self.lower[i]:.2f} to {self.upper[i]:.2f}",
                f"{self.excess[i]:.3f}" if self.excess[i] < 0.9995 else "> 0.999",
            ]
            for i in self.order()[:count]
        ]
        header = ["district", "state", "deaths", "expected", "SMR", "risk", "95 % interval", "P(risk > 1)"]
        return Table(header, rows, f"The {count} districts with the largest posterior relative risk")

    def states(self) -> list[tuple[str, float]]:
        """The relative risk of each state (its districts weighted by expected deaths), largest first."""
        state, E = np.array(self.data.state), self.data.E
        means = {str(name): float(np.average(self.risk, weights=E * (state == name))) for name in np.unique(state)}
        return sorted(means.items(), key=lambda pair: -pair[1])

    def text(self) -> str:
        """What the command prints."""
        table = self.table(8)
        loo, alone = self.solution.loo().elpd, self.alone.loo().elpd
        return "\n".join(
            [
                self.solution.summary(),
                "",
                f"k_u = {self.k_u:g} (neighbours), k_v = {self.k_v:g} (own deviation): largest elbo on a "
                f"{len(K_U)} x {len(K_V)} grid",
                f"leave-one-out elpd {loo:.1f}; without neighbours {alone:.1f}",
                "",
                table.caption + ":",
                table.text(),
            ]
        )


def formula(data: Germany) -> FittedModel:
    """The map as one formula."""
    frame = {"district": data.key, "deaths": data.Y, "expected": data.E}
    graphs, levels = {"district": data.adjacency}, {"district": data.key}
    return fit_formula(FORMULA, frame, family="poisson", exposure="expected", graphs=graphs, levels=levels)


def fields(adjacency: sparse.csr_array) -> tuple[gmrf.MarkovField, gmrf.MarkovField]:
    """eta = intercept + u + v with neighbours (u an intrinsic CAR, v independent), and eta = intercept + v without."""
    districts = np.arange(adjacency.shape[0])
    with_neighbours, alone = gmrf.bym(adjacency), gmrf.iid(districts.size)
    both, iid = (gmrf.stack([(f, districts)], fixed_variance=INTERCEPT_VARIANCE) for f in (with_neighbours, alone))
    return both, iid


def fit(data: Germany, tick: Tick = lambda what: None) -> DiseaseMap:
    """Choose (k_u, k_v) by the elbo, then fit at relative gap 1e-10. ``tick`` hears of every fit that ends."""
    likelihood, (both, iid) = Poisson(exposure=data.E), fields(data.adjacency)

    def prior(k_u: float, k_v: float) -> SparsePrecision:
        return iid.at([-0.5 * np.log(k_v)]) if np.isinf(k_u) else both.at(-0.5 * np.log([k_u, k_v]))

    def search(grid_u: tuple[float, ...], grid_v: tuple[float, ...]) -> tuple[np.ndarray, float, float]:
        evidence, last = np.empty((len(grid_u), len(grid_v))), None
        for i, j in np.ndindex(evidence.shape):
            last = infer(likelihood, prior(grid_u[i], grid_v[j]), data.Y, start=last)
            evidence[i, j] = last.elbo
            tick(f"k_u = {grid_u[i]:g}, k_v = {grid_v[j]:g}: elbo {last.elbo:.2f}")
        i, j = np.unravel_index(int(np.argmax(evidence)), evidence.shape)
        return evidence, grid_u[i], grid_v[j]

    evidence, k_u, k_v = search(K_U, K_V)
    _, _, k_v_alone = search((np.inf,), K_V_ALONE)
    alone = infer(likelihood, prior(np.inf, k_v_alone), data.Y, tol=1e-10)
    solution = infer(likelihood, prior(k_u, k_v), data.Y, tol=1e-10)
    tick(f"final fit: gap {solution.gap:.1e}")
    h, rho = solution.posterior.mean, solution.posterior.variance
    sd, risk = np.sqrt(rho), np.exp(h + rho / 2)
    n = data.Y.size
    u, v = solution.posterior.latent_mean[:n], solution.posterior.latent_mean[n : 2 * n]
    return DiseaseMap(
        data=data,
        solution=solution,
        alone=alone,
        k_u=k_u,
        k_v=k_v,
        evidence=evidence,
        risk=risk,
        lower=np.exp(h - 1.959964 * sd),
        upper=np.exp(h + 1.959964 * sd),
        risk_sd=risk * np.sqrt(np.expm1(rho)),
        excess=ndtr(h / sd),
        spatial_share=float(np.var(u) / (np.var(u) + np.var(v))),
    )


def report(result: DiseaseMap, fitted: FittedModel, path: Path) -> Path:
    """Write the page for an epidemiologist: the formula and what it answers, then the map by hand."""
    data = result.data
    own = [_seen(result), _sure(result), _proof(result), _smoothing(result), _model(result)]
    written = Section("In Python", [Pre(_CODE), "What follows is what fit.report writes of any fitted model."])
    chapters = [
        Section(f"One formula: {FORMULA}", sections=[written, *sections_of(fitted, {"district": data.polygons})]),
        Section("The map, read closely", sections=own),
    ]
    lead = (
        f"{data.Y.sum():.0f} deaths in {data.Y.size} districts, 1986-90: where is the risk raised, and how sure can "
        "one be?"
    )
    return write_report(path, "Cancer of the oral cavity in Germany", chapters, lead, contents=True)


def _seen(result: DiseaseMap) -> Section:
    """Raw and estimated risks, side by side."""
    data = result.data
    smr = data.Y / data.E
    high, low = int((result.excess > 0.975).sum()), int((result.excess < 0.025).sum())
    states = [f"{name} ({value:.2f})" for name, value in result.states()]
    # the district whose raw ratio is furthest from 1 shows what smoothing does
    odd = int(np.argmax(np.abs(np.log(smr))))
    scale = (0.5, 2.0)
    return Section(
        "What is seen",
        [
            f"Each of the {data.Y.size} districts has a number of deaths and a number expected from the size and "
            "age of its population. Their ratio, the SMR, is a poor guide where few deaths are expected: chance "
            "alone makes it very large or very small. The model lets each district borrow strength from its "
            "neighbours, as far as the data support it, and says how sure it is.",
            Row(
                [
                    _area(
                        data.polygons,
                        smr,
                        "Raw ratio (SMR)",
                        "deaths / expected deaths",
                        "Map of Germany by district: raw standardised mortality ratio, a patchwork of high and low",
                        f"As observed: from {smr.min():.2f} to {smr.max():.2f}. Arrow ends: beyond the scale.",
                        ratio=True,
                        limits=scale,
                    ),
                    _area(
                        data.polygons,
                        result.risk,
                        "Posterior relative risk",
                        "relative risk, posterior mean",
                        "Map of Germany by district: smoothed relative risk, with clear regions of high and low",
                        f"As estimated, same colours: from {result.risk.min():.2f} to {result.risk.max():.2f}. "
                        "Red is above, blue below what is expected.",
                        ratio=True,
                        limits=scale,
                    ),
                ]
            ),
            f"The states with the largest relative risk are {', '.join(states[:3])}; with the smallest, "
            f"{', '.join(states[:-4:-1])}. In {high} districts the risk is above 1 with posterior probability over "
            f"97.5 %, in {low} it is below 1 with that probability; for the other {data.Y.size - high - low} the "
            "data do not settle it.",
            f"What smoothing does: district {data.key[odd]} ({data.state[odd]}) has {_deaths(data.Y[odd])} where "
            f"{data.E[odd]:.1f} are expected, an SMR of {smr[odd]:.2f}, the most extreme of all. Its estimated "
            f"relative risk is {result.risk[odd]:.2f} ({result.lower[odd]:.2f} to {result.upper[odd]:.2f}).",
            f"{100 * result.spatial_share:.0f} % of the variance of the fitted log risks follows the neighbours; "
            "the rest is the districts' own.",
            result.table(),
        ],
    )


def _sure(result: DiseaseMap) -> Section:
    """Probabilities of excess risk, standard deviations and intervals."""
    data = result.data
    return Section(
        "How sure it is",
        [
            Row(
                [
                    _area(
                        data.polygons,
                        result.excess,
                        "Probability of excess risk",
                        "P(relative risk > 1)",
                        "Map of Germany by district: posterior probability that the relative risk is above 1",
                        "Near 1: almost surely more deaths than expected. Near 0: almost surely fewer.",
                        cmap="cividis",
                        limits=(0.0, 1.0),
                    ),
                    _area(
                        data.polygons,
                        result.risk_sd,
                        "Uncertainty",
                        "relative risk, posterior sd",
                        "Map of Germany by district: posterior standard deviation of the relative risk",
                        "Large where few deaths are expected, where there are few neighbours, and where the risk "
                        "itself is large.",
                    ),
                ]
            ),
            Picture(
                plot_caterpillar(result.risk, result.lower, result.upper, label="relative risk").figure,
                "All districts in increasing order of relative risk, each with its 95 % interval",
                "All districts in increasing order, with 95 % intervals.",
            ),
        ],
    )


def _proof(result: DiseaseMap) -> Section:
    """The certificate, and what neighbours are worth."""
    sol = result.solution
    loo, alone = sol.loo().elpd, result.alone.loo().elpd
    return Section(
        "The fit and its proof",
        [
            "The method closes in on the answer from two sides: the lower bound is what the current fit achieves, "
            "the upper bound is what no Gaussian approximation can exceed. When they meet, the computation is "
            "finished, and the gap between them says how exactly. This is a proof about the computation, for the "
            "model as stated; whether the model suits the disease is a question for the reader.",
            Pre(sol.summary()),
            Picture(
                plot_trace(sol),
                "Two panels: lower and upper bound meeting within a few iterations, and their gap on a log axis",
                f"Both bounds, and the gap between them, over {sol.n_iter} iterations.",
            ),
            f"Leave-one-out check: predicting each district's deaths from all the others scores {loo:.1f} (sum of "
            f"log predictive probabilities, larger is better). The same model without neighbours scores "
            f"{alone:.1f}, so neighbours are worth {loo - alone:.1f}. Both are read off the fits; "
            "nothing is fitted again.",
        ],
    )


def _smoothing(result: DiseaseMap) -> Section:
    """The grid of smoothing parameters."""
    return Section(
        "How much smoothing",
        [
            f"Two numbers set the smoothing: k_u, how alike neighbours are, and k_v, how little a district "
            f"deviates on its own. Every pair on a {len(K_U)} x {len(K_V)} grid was fitted and the pair with "
            f"the largest evidence (elbo) kept: k_u = {result.k_u:g}, k_v = {result.k_v:g}. The intervals above "
            "take that pair as known, so they are a little too narrow.",
            Picture(
                plot_grid(
                    K_U, K_V, result.evidence, row_label="k_u (neighbours)", column_label="k_v (own deviation)"
                ).figure,
                "Table in colours: log evidence at each pair of smoothing parameters, less the best one",
                f"Log evidence (elbo) less its largest value, {result.evidence.max():.2f}. The best is framed.",
            ),
        ],
    )


def _model(result: DiseaseMap) -> Section:
    """The model in formulas, and where the data come from."""
    data = result.data
    return Section(
        "Model and data",
        [
            Pre(
                "deaths_i ~ Poisson(expected_i * exp(eta_i))\n"
                "eta_i    = intercept + u_i + v_i\n"
                f"u        ~ intrinsic CAR on shared borders, precision k_u = {result.k_u:g}, sum to zero\n"
                f"v_i      ~ N(0, 1/k_v), k_v = {result.k_v:g}\n"
                f"intercept ~ N(0, {INTERCEPT_VARIANCE:g})\n"
                "relative risk_i = exp(eta_i), log-normal under the fitted posterior"
            ),
            f"{data.description}. Source: {data.attribution}; {data.licence}.",
        ],
    )


def _area(
    polygons: list[list[np.ndarray]],
    values: np.ndarray,
    title: str,
    label: str,
    alt: str,
    caption: str,
    **style: object,
) -> Picture:
    ax = plot_map(polygons, values, title=title, label=label, **style)  # type: ignore[arg-type]
    return Picture(ax.figure, alt, caption)


def _deaths(count: float) -> str:
    return "1 death" if count == 1 else f"{count:.0f} deaths"


def run(out: str | Path = "report", progress: bool = False, quiet: bool = False) -> DiseaseMap:
    """Fit the map, print a summary and write ``out/report.html``.

    Parameters
    ----------
    out : folder for the report, made if missing
    progress : draw a live bar on standard error
    quiet : do not print the summary
    """
    data = load_germany()
    with _bar(progress, len(K_U) * len(K_V) + len(K_V_ALONE) + 2) as tick:
        tick(FORMULA)
        fitted = formula(data)
        if not quiet:
            print(f"{_CODE}\n\n{fitted.summary()}\n\nThe same map by hand, a grid in place of learning:\n")
        result = fit(data, tick)
    if not quiet:
        print(result.text())
    page = report(result, fitted, Path(out) / "report.html")
    print(page if quiet else f"\nreport: {page}")
    return result


@contextmanager
def _bar(show: bool, total: int) -> Iterator[Tick]:
    if not show:
        yield lambda what: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task("fitting", total=total)
        yield lambda what: bar.update(task, advance=1, description=what)

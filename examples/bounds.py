"""Comparison of bounds: how far each is above the expected loss, and its effect on evidence and prediction.

The upper panels show f(h, rho) - E[-log p(y|eta)], eta ~ N(h, rho), against the standard deviation of eta; the curves
are the same for y = 0 and y = 1. The lower panels show a Gaussian process that is fitted to half of the data: the
evidence, and the loss on the other half, against the signal variance. A dot marks the maximum of the evidence of a
bound. The right panels show the same for regression with Laplace noise. The page ``docs/bounds.md`` explains.

    python examples/bounds.py [picture.png]
"""

import sys
import time

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

import fenchel
from fenchel.datasets import load_pima
from fenchel.hyperparameters import KernelCovariance, learn
from fenchel.likelihoods import BernoulliLogit, LaplaceNoise
from fenchel.plots.base import BLUE, ORANGE, PALETTE, quiet
from fenchel.priors import DenseCovariance

LOGIT = ("log-sum", "bohning", "jaakkola", "tilted", "exact")
COLOURS = dict(zip(LOGIT, (ORANGE, PALETTE[3], PALETTE[2], BLUE, "black"), strict=True))
COLOURS["super-gaussian"] = COLOURS["jaakkola"]  # the same construction
KERNEL = ConstantKernel(4.0, (1e-3, 1e6)) * RBF(3.0, (0.1, 1e3))
VARIANCES, LENGTH = 10.0 ** np.linspace(-1, 4, 16), 3.5


def excess(likelihood, y, h, sd):
    """f(h, rho) - E[-log p(y|eta)] at each standard deviation."""
    rows = likelihood.prepare(np.full(sd.size, y))
    h, rho = np.full((sd.size, 1), h), sd[:, None] ** 2
    return likelihood.objective.f(h, rho, rows) - likelihood.exact_loss(h, rho, rows).value


def crossings():
    """The standard deviation from which Jaakkola's bound is below the tilted one."""
    sd, out = 10.0 ** np.linspace(-1, 2, 3001), []
    for h in (1.0, 3.0, 10.0):
        tilted, jaakkola = (excess(BernoulliLogit(bound), 1.0, h, sd) for bound in ("tilted", "jaakkola"))
        out.append(sd[np.argmax(tilted > jaakkola)])
        print(f"h = {h:g}: tilted is tighter than jaakkola up to a standard deviation of {out[-1]:.1f}")
    return out


def halves(X, y, n):
    """A random half to learn from and the other to test on, in scales of the first; then, if n = 2, exchanged."""
    order = np.random.default_rng(0).permutation(len(y))
    for one, other in [np.array_split(order, 2), np.array_split(order, 2)[::-1]][:n]:
        Z = (X - X[one].mean(axis=0)) / X[one].std(axis=0)
        yield Z[one], y[one].astype(float), Z[other], y[other].astype(float)


def losses(likelihood, kernel, sol, X, new, y):
    """-log p(y) of each new row, in bits."""
    mean, variance = sol.posterior.predict(cross=kernel(new, X), variance=kernel.diag(new))
    return -likelihood.predictive_log_density(y, mean, variance) / np.log(2)


def sweep(likelihood, length, half):
    """Evidence, test loss, iterations, whether it converged and the mean |h|, over the signal variance."""
    X, y, new, y_new = half
    out = []
    for variance in VARIANCES:
        kernel = ConstantKernel(variance) * RBF(length)
        sol = fenchel.infer(likelihood, DenseCovariance(kernel(X)), y)
        bits = losses(likelihood, kernel, sol, X, new, y_new).mean()
        out.append((sol.elbo, bits, sol.n_iter, sol.converged, np.abs(sol.posterior.mean).mean()))
    return np.array(out).T


def compare(title, likelihoods, X, y, n):
    """Learn with each bound on each half, and print a line for each bound."""
    print(f"\n{title}: evidence of the halves and loss of the others, {len(y)} rows")
    head = f"{'bound':>15}{'certificate':>18}{'evidence':>10}{'variance':>10}{'length':>8}{'bits':>8}"
    print(head + f"{'minus exact':>18}{'fits':>6}{'iterations':>12}{'cpu':>6}")
    rows = {}
    for likelihood in likelihoods:
        began, found, bits = time.process_time(), [], []
        for half in halves(X, y, n):
            found.append(learn(likelihood, KernelCovariance(KERNEL, half[0]), half[1]))
        seconds = time.process_time() - began
        for one, half in zip(found, halves(X, y, n), strict=True):
            kernel = KERNEL.clone_with_theta(one.theta[:2])
            bits.append(losses(one.likelihood, kernel, one.solution, half[0], half[2], half[3]))
        rows[likelihood.bound] = (found, np.concatenate(bits), seconds)
    for bound, (found, bits, seconds) in rows.items():
        first, difference = found[0].solution, bits - rows["exact"][1]
        variance, length = np.exp(np.mean([one.theta[:2] for one in found], axis=0))
        error = difference.std() / np.sqrt(difference.size)
        print(
            f"{bound:>15}{first.certificate:>18}{sum(one.solution.elbo for one in found):>10.2f}{variance:>10.3g}"
            f"{length:>8.3g}{bits.mean():>8.4f}{difference.mean():>9.4f} +- {error:.4f}"
            f"{sum(one.n_evaluations for one in found):>6}{sum(one.n_newton for one in found):>12}"
            f"{seconds / rows['exact'][2]:>6.2f}"
        )
    return rows


def alternate(K, y, best, limit=5000):
    """The local variational method: a Gaussian fit at fixed xi, then xi^2 = h^2 + rho, until 1e-6 |best| from best."""
    xi = np.sqrt(np.diag(K))
    for n in range(1, limit + 1):
        lam = np.tanh(xi / 2) / (2 * xi)
        root = np.sqrt(lam)
        factor = cho_factor(np.eye(y.size) + root[:, None] * K * root, lower=True)
        V = K - (K * root) @ cho_solve(factor, root[:, None] * K)
        h, rho = V @ (y - 0.5), np.diag(V)
        beta = lam * h - (y - 0.5)
        kl = np.log(np.diag(factor[0])).sum() - 0.5 * lam @ rho + 0.5 * beta @ K @ beta
        at_xi = (0.5 - y) * h + np.logaddexp(xi / 2, -xi / 2) + lam / 2 * (h**2 + rho - xi**2)
        if best + kl + at_xi.sum() < 1e-6 * abs(best):
            return n
        xi = np.sqrt(h**2 + rho)
    return limit


def race(half):
    """Alternations against Newton iterations, to the same optimum of the quadratic bound."""
    X, y = half[:2]
    print("\nThe quadratic bound on Pima, to 1e-6 of its optimum: alternating xi, and Newton")
    print(f"{'variance':>15}{'alternations':>14}{'iterations':>12}{'cpu, alternating/Newton':>26}")
    out, likelihood = [], BernoulliLogit("jaakkola")
    for variance in (1.0, 1e2, 1e4):
        K = (ConstantKernel(variance) * RBF(LENGTH))(X)
        prior = DenseCovariance(K)
        best = fenchel.infer(likelihood, prior, y, tol=1e-12).elbo
        clock = [time.process_time()]
        n = alternate(K, y, best)
        clock.append(time.process_time())
        sol = fenchel.infer(likelihood, prior, y, tol=1e-6)
        clock.append(time.process_time())
        out.append((n, sol.n_iter))
        print(f"{variance:>15g}{n:>14}{sol.n_iter:>12}{(clock[1] - clock[0]) / (clock[2] - clock[1]):>26.1f}")
    return out


def draw(picture, logit, noise):
    """Draw six panels: the excess of each bound, and its effect on evidence and loss."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    figure = Figure(figsize=(12, 7.4), layout="constrained")
    axes, sd = figure.subplots(2, 3), 10.0 ** np.linspace(-1.5, 1.5, 121)
    for ax, h in zip(axes[0], (0.0, 3.0), strict=False):
        for bound in LOGIT[:-1]:
            ax.plot(sd, excess(BernoulliLogit(bound), 1.0, h, sd), color=COLOURS[bound], lw=1.8)
        ax.set_title(f"logit, h = {h:g}", fontsize="medium")
    axes[0, 0].lines[-1].set(dashes=(3, 2))  # at h = 0 tilted is Boehning's bound
    axes[0, 1].plot(sd, excess(BernoulliLogit("log-sum"), 1.0, -3.0, sd), color=ORANGE, lw=1.2, ls=":")
    axes[0, 1].annotate(
        "log-sum, h = -3", (0.06, 1.3e-5), color=ORANGE, rotation=30, rotation_mode="anchor", fontsize=9
    )
    axes[0, 0].annotate("tilted = bohning", (0.45, 2e-5), color=BLUE, fontsize=9)
    for h, style in ((0.0, "-"), (3.0, "--")):
        values = excess(LaplaceNoise(1.0, "super-gaussian"), 0.0, h, sd)
        axes[0, 2].plot(sd, values, color=COLOURS["super-gaussian"], lw=1.8, ls=style, label=f"|h - y| = {h:g}")
    axes[0, 2].set_title("Laplace noise, scale b = 1", fontsize="medium")
    axes[0, 2].legend(frameon=False)
    for ax in axes[0]:
        ax.set(xscale="log", yscale="log", xlabel=r"standard deviation $\sqrt{\rho}$", ylim=(1e-6, 1e3))
    axes[0, 0].set_ylabel(r"$f(h, \rho) - E[-\log p]$ (nats)")
    for table, panels in ((logit, axes[1, :2]), (noise, axes[1, 2:])):
        for bound, values in table.items():
            top = values[0].argmax()
            for ax, line in zip(panels, values[:2], strict=False):
                ax.plot(VARIANCES, line, color=COLOURS[bound], lw=1.8, zorder=3 if bound == "exact" else 2)
                ax.plot(VARIANCES[top], line[top], "o", color=COLOURS[bound], ms=6, zorder=4)
    for ax, title, label in (
        (axes[1, 0], "logit: Pima, 266 women", "evidence: best elbo (nats)"),
        (axes[1, 1], "logit: Pima, the other 266", "test log loss (bits)"),
        (axes[1, 2], "Laplace noise: 221 patients", "evidence: best elbo (nats)"),
    ):
        ax.set(xscale="log", xlabel="signal variance", ylabel=label)
        ax.set_title(title, fontsize="medium")
    axes[1, 0].set_ylim(-260, -120)
    axes[1, 1].set_ylim(0.62, 1.1)
    axes[1, 2].set(xlim=(0.08, 300), ylim=(-460, -250))
    for ax in axes.flat:
        quiet(ax)
    names = dict.fromkeys(LOGIT) | {"jaakkola": "jaakkola, super-gaussian", "exact": "exact (no bound)"}
    handles = [Line2D([], [], color=COLOURS[b], lw=1.8, label=names[b] or b) for b in LOGIT]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(LOGIT), frameon=False)
    figure.savefig(picture, dpi=150)


def main(picture=None, n_halves=2):
    pima, progress = load_pima(), load_diabetes(return_X_y=True)
    progress = progress[0], (progress[1] - progress[1].mean()) / progress[1].std()
    logits = [BernoulliLogit(bound) for bound in LOGIT]
    noises = [LaplaceNoise(0.5, bound) for bound in ("super-gaussian", "exact")]
    results = {
        "crossings": crossings(),
        "pima": compare("Pima", logits, pima.X, pima.y, n_halves),
        "cancer": compare("Breast cancer", logits, *load_breast_cancer(return_X_y=True), n_halves),
        "progress": compare("Disease progression, Laplace noise", noises, *progress, n_halves),
    }
    half, other = next(halves(pima.X, pima.y, 1)), next(halves(*progress, 1))
    results["race"] = race(half)
    logit = {likelihood.bound: sweep(likelihood, LENGTH, half) for likelihood in logits}
    noise = {likelihood.bound: sweep(likelihood, LENGTH, other) for likelihood in noises}
    print(f"\nPima, length {LENGTH:g}: evidence, test loss in bits and iterations at a given variance")
    print(f"{'variance':>10}" + "".join(f"{bound:>19}" for bound in LOGIT))
    for i in range(0, VARIANCES.size, 3):
        cells = "".join(f"{v[0][i]:>9.1f}{v[1][i]:>7.3f}{v[2][i]:>3.0f}" for v in logit.values())
        print(f"{VARIANCES[i]:>10g}{cells}")
    print(f"{'mean |h|':>10}" + "".join(f"{v[4][-1]:>19.1f}" for v in logit.values()) + "   (the last row's)")
    results["sweep"] = logit
    if picture:
        draw(picture, logit, noise)
    return results


if __name__ == "__main__":
    main(*sys.argv[1:2])

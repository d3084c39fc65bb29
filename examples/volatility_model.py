"""How nervous was the pound? Volatility of its daily returns against the dollar, 1981 to 1985, and what comes next.

Seen: the standard deviation of a day's return with its 95 % band, the returns behind it as absolute values, and a
forecast of half a year that falls back to the long-run level. Persistence and variance of the log-variance are learned.

    python examples/volatility_model.py [picture.png]
"""

import sys

from fenchel.datasets import load_stochvol
from fenchel.estimators import StochasticVolatilityModel, VolatilityDisplay


def main(picture=None):
    pound = load_stochvol()
    returns = pound.returns - pound.returns.mean()
    model = StochasticVolatilityModel().fit(pound.dates, returns)
    print(f"phi {model.phi_:.3f}, sigma {model.sigma_:.3f}: elbo {model.elbo_:.4f}, proved to within {model.gap_:.0e}")
    low, high = model.forecast(1, (0.025, 0.975))[["return_0.025", "return_0.975"]].iloc[0]
    print(f"the next day's return is between {low:.2f} and {high:.2f} percent with probability 0.95")
    if picture:
        from matplotlib.figure import Figure

        ax = Figure(figsize=(8, 4), layout="constrained").subplots()
        display = VolatilityDisplay.from_estimator(model, returns=returns, forecast=125, ylabel="percent a day", ax=ax)
        display.ax_.set_ylim(0, None)
        display.figure_.savefig(picture, dpi=150)
    return model


if __name__ == "__main__":
    main(*sys.argv[1:2])

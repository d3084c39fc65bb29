"""Factor models written as words and numbers, for the tests of them."""

import numpy as np

from fenchel.factors.factor_model import FactorModel, Parameters
from fenchel.likelihoods import BernoulliLogit, Gaussian, MultinomialLogit, Ordinal, Poisson


def factor_model(kinds, levels, n_components, bound="tilted", noise="column"):
    """A model of columns by their words; ``levels`` are read where a column has levels."""
    if bound == "exact" and "multinomial" in kinds:
        bound = "tilted"
    made = {
        "bernoulli": lambda K: BernoulliLogit(bound),
        "poisson": lambda K: Poisson(),
        "multinomial": lambda K: MultinomialLogit(K, bound="log-sum"),
        "ordinal": lambda K: Ordinal(np.arange(K - 1.0), bound),
        "gaussian": lambda K: Gaussian(1.0),
    }
    return FactorModel([made[kind](K) for kind, K in zip(kinds, levels, strict=True)], n_components, noise)


def parameters_of(model, W, b, variance=None, cutpoints=()):
    """Loadings and offsets with a variance for each column, read where it is gaussian, and all cutpoints in a row."""
    out, left = [], list(cutpoints)
    for j, own in enumerate(model.likelihoods):
        if isinstance(own, Gaussian):
            own = own.changed(variance=float(variance[j]))
        elif isinstance(own, Ordinal):
            n = own.cutpoints.size
            own, left = own.changed(cutpoints=np.array(left[:n])), left[n:]
        out.append(own)
    return Parameters(W, b, tuple(out))

"""numpyro's no-U-turn sampler, in double precision; latents are independent standard normals a priori."""

import numpy as np

PACKAGE = "numpyro"
RATE = -np.log(0.01)  # of an exponential sd with P(sd > 1) = 0.01
HALF_NORMAL = 5.0 / 1.959964


def draws(model, kept, warmup=500, samples=1000):
    """Means and sds of what is kept, over one chain."""
    import jax
    import numpyro
    from numpyro.infer import MCMC, NUTS

    numpyro.enable_x64()
    sampler = MCMC(NUTS(model), num_warmup=warmup, num_samples=samples, progress_bar=False)
    sampler.run(jax.random.PRNGKey(0))
    found = sampler.get_samples()
    return {key: np.asarray(found[key]) for key in kept}


def told(found, key):
    return {"mean": found[key].mean(axis=0), "sd": found[key].std(axis=0)}


def binary_process(data):
    """NUTS, 500 + 1,000 draws"""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    train = data["train"]
    X = np.column_stack([train[name] for name in sorted(train) if name.startswith("x")])
    apart = ((X[:, None, :] - X[None, :, :]) ** 2).sum(axis=2) / data["kernel"]["length"][0] ** 2
    K = data["kernel"]["variance"][0] * np.exp(-0.5 * apart)
    root = np.linalg.cholesky(K + 1e-8 * np.eye(len(K)))

    def model():
        e = numpyro.sample("e", dist.Normal(jnp.zeros(len(K)), 1.0))
        f = numpyro.deterministic("f", jnp.asarray(root) @ e)
        numpyro.sample("y", dist.Bernoulli(logits=f), obs=train["y"])

    return told(draws(model, ["f"]), "f")


def counts_on_graph(data):
    """NUTS, 500 + 1,000 draws, BYM2 with the priors of the truth"""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    y, E, edges = data["train"]["y"], data["train"]["E"], data["edges"]
    n = y.size
    A = np.zeros((n, n))
    A[edges["a"], edges["b"]] = A[edges["b"], edges["a"]] = 1.0
    values, vectors = np.linalg.eigh(np.diag(A.sum(axis=1)) - A)
    root = vectors[:, 1:] / np.sqrt(values[1:])
    root /= np.exp(0.5 * np.log((root**2).sum(axis=1)).mean())
    level = np.log(y.sum() / E.sum())

    def model():
        sd = numpyro.sample("sd", dist.Exponential(RATE))
        phi = 1.0 / (1.0 + jnp.exp(-numpyro.sample("logit", dist.Normal(0.0, 1.8))))
        b = numpyro.sample("b", dist.Normal(0.0, 10.0))
        v = numpyro.sample("v", dist.Normal(jnp.zeros(n), 1.0))
        u = numpyro.sample("u", dist.Normal(jnp.zeros(n - 1), 1.0))
        eta = level + b + sd * (jnp.sqrt(1.0 - phi) * v + jnp.sqrt(phi) * (jnp.asarray(root) @ u))
        numpyro.deterministic("eta", eta)
        numpyro.sample("y", dist.Poisson(E * jnp.exp(eta)), obs=y)

    return told(draws(model, ["eta"]), "eta")


def longitudinal_binary(data):
    """NUTS, 500 + 4,000 draws, half-normal sd of 2.55, coefficients N(0, 10^2)"""
    import numpyro
    import numpyro.distributions as dist

    train = data["train"]
    groups = int(train["g"].max()) + 1

    def model():
        sd = numpyro.sample("group", dist.HalfNormal(HALF_NORMAL))
        b = numpyro.sample("b", dist.Normal(np.zeros(3), 10.0))
        u = numpyro.sample("u", dist.Normal(np.zeros(groups), 1.0))
        eta = b[0] * train["x"] + b[1] * train["treated"] + b[2] + sd * u[train["g"]]
        numpyro.sample("y", dist.Bernoulli(logits=eta), obs=train["y"])

    found = draws(model, ["b", "group"], samples=4000)
    each = told(found, "b")
    return {"mean": each["mean"][:2], "sd": each["sd"][:2], "group": found["group"].mean()}


def survival_frailty(data):
    """NUTS, 500 + 4,000 draws, half-normal sd of 2.55, coefficients N(0, 10^2), log shape N(0, 1)"""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    train = data["train"]
    groups = int(train["g"].max()) + 1

    def model():
        sd = numpyro.sample("group", dist.HalfNormal(HALF_NORMAL))
        b = numpyro.sample("b", dist.Normal(np.zeros(3), 10.0))
        u = numpyro.sample("u", dist.Normal(np.zeros(groups), 1.0))
        log_k = numpyro.sample("log_k", dist.Normal(0.0, 1.0))
        eta = b[0] * train["x"] + b[1] * train["treated"] + b[2] + sd * u[train["g"]]
        k, log_t = jnp.exp(log_k), np.log(train["y"])
        numpyro.factor("y", jnp.sum(train["event"] * (eta + log_k + (k - 1.0) * log_t) - jnp.exp(k * log_t + eta)))

    found = draws(model, ["b", "group"], samples=4000)
    each = told(found, "b")
    return {"mean": each["mean"][:2], "sd": each["sd"][:2], "group": found["group"].mean()}


def crossed_labels(data):
    """NUTS, 500 + 1,000 draws, half-normal sds of 2.55, coefficients N(0, 10^2) of standardised columns"""
    import numpyro
    import numpyro.distributions as dist

    train = data["train"]
    X = np.column_stack([train[name] for name in ("anger", "male", "scold", "shout", "self")])
    centre, unit = X.mean(axis=0), X.std(axis=0)
    Z = (X - centre) / unit

    def model():
        s = numpyro.sample("group", dist.HalfNormal(HALF_NORMAL).expand([2]))
        b0 = numpyro.sample("b0", dist.Normal(0.0, 10.0))
        b = numpyro.sample("b", dist.Normal(np.zeros(5), 10.0))
        u = numpyro.sample("u", dist.Normal(np.zeros(316), 1.0))
        v = numpyro.sample("v", dist.Normal(np.zeros(24), 1.0))
        eta = b0 + Z @ b + s[0] * u[train["person"]] + s[1] * v[train["item"]]
        numpyro.sample("y", dist.Bernoulli(logits=eta), obs=train["y"])

    found = draws(model, ["b0", "b", "group"])
    slopes = found["b"] / unit
    found["all"] = np.column_stack([found["b0"] - slopes @ centre, slopes])
    return {**told(found, "all"), "group": found["group"].mean(axis=0)}


def full_posterior(data):
    """NUTS, 500 + 4,000 draws, the priors of the truth"""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    y, x, g = (data["train"][name] for name in ("y", "x", "g"))
    c, s = x.mean(), x.std()
    z = (x - c) / s
    level = np.log(y.mean() / (1.0 - y.mean()))

    def model():
        s0 = numpyro.sample("s0", dist.Exponential(RATE))
        s1 = numpyro.sample("s1", dist.Exponential(RATE))
        r = numpyro.sample("r", dist.Uniform(-1.0, 1.0))
        b = numpyro.sample("b", dist.Normal(np.zeros(2), 10.0))
        e = numpyro.sample("e", dist.Normal(np.zeros((60, 2)), 1.0))
        slope = s1 * (r * e[:, 0] + jnp.sqrt(1.0 - r * r) * e[:, 1])
        eta = level + b[0] + b[1] * z + (s0 * e[:, 0])[g] + slope[g] * z
        numpyro.deterministic("eta", eta)
        root = jnp.sqrt(s0**2 - 2.0 * r * s0 * s1 * c / s + (s1 * c / s) ** 2)
        numpyro.deterministic("theta", jnp.stack([root, s1 / s, (r * s0 - s1 * c / s) / root]))
        numpyro.sample("y", dist.Bernoulli(logits=eta), obs=y)

    found = draws(model, ["eta", "theta"], samples=4000)
    return {**told(found, "eta"), "theta": found["theta"].mean(axis=0)}

"""What the pages of families and terms say beside what the source declares: mathematics, other packages, an example."""

_MIXED = 'fit = fenchel.fit("{} ~ x + (1|g)", data, family="{}"{})'


def _family(line: str, law: str, link: str, r: str, python: str, y: str, word: str, more: str = "") -> dict[str, str]:
    return {
        "in one line": line,
        "distribution": law,
        "link": link,
        "in R": r,
        "in Python": python,
        "example": _MIXED.format(y, word, more),
    }


_IDENTITY = r"identity: the centre of y is $\eta$, in the unit of y"
_LOG = r"log: $\log \mu = \eta + \log E$, where $E$ is the `exposure=` (1 if not given)"
_LOG_ZERO = (
    r"log: $\log \mu = \eta + \log E$, where $E$ is the `exposure=`; `zero=` is a formula for $\text{logit}\,\pi$"
)
_LOGIT = r"logit: $\log(p/(1-p)) = \eta$"
_NB2, _NB1 = r"variance $\mu + \mu^2/\text{size}$", r"variance $\mu\,(1 + \text{dispersion})$"
_TRUNCATED = r"$P(y) = p_0(y)/(1 - p_0(0))$ for $y = 1, 2, \dots$, where $p_0$ is"
_HURDLE = r"$P(0) = \pi$ and $P(y) = (1-\pi)\,p_0(y)/(1 - p_0(0))$ for $y = 1, 2, \dots$, where $p_0$ is"
_ZERO = r"$P(0) = \pi + (1-\pi)\,p_0(0)$ and $P(y) = (1-\pi)\,p_0(y)$ for $y = 1, 2, \dots$, where $p_0$ is"
_PSI = r"its `psi` is $1 - \pi$"
_NB2_P0 = rf"the negative binomial with mean $\mu$ and {_NB2}"
_NB1_P0 = rf"the negative binomial with mean $\mu$ and {_NB1}"

FAMILIES: dict[str, dict[str, str]] = {
    "gaussian": _family(
        "a real number with normal noise",
        r"$y \sim N(\eta, \text{sd}^2)$",
        _IDENTITY,
        "`gaussian()`; `lmer` in lme4; `gaussian` in R-INLA, whose precision is 1/sd^2",
        "statsmodels `MixedLM`; scikit-learn `GaussianProcessRegressor`",
        "y",
        "gaussian",
    ),
    "laplace": _family(
        "a real number with double-exponential noise; eta is the median of y",
        r"$p(y) = \exp(-|y - \eta|/b)/(2b)$ with scale $b$; the sd of the noise is $\sqrt{2}\,b$",
        _IDENTITY,
        "`asym_laplace()` in brms with `quantile = 0.5`; close to `quantreg::rq(tau = 0.5)`",
        "statsmodels `QuantReg` at 0.5",
        "y",
        "laplace",
    ),
    "logistic": _family(
        "a real number with logistic noise, whose tails are slightly heavier than normal",
        r"$y = \eta + b\,\epsilon$, where $\epsilon$ is standard logistic; the sd of the noise is $\pi b/\sqrt{3}$",
        _IDENTITY,
        '`survreg(dist = "logistic")` in survival, without censoring',
        "-",
        "y",
        "logistic",
    ),
    "student-t": _family(
        "a real number with outliers",
        r"$y = \eta + b\,t_\nu$ with scale $b$ and $\nu = 4$ degrees of freedom. "
        "`family=fenchel.likelihoods.StudentT(df=8.0)` fixes another number, and `StudentT(learn_df=True)` learns it",
        _IDENTITY,
        "`t_family` in glmmTMB, `scat()` in mgcv, `student()` in brms, `T` in R-INLA; these estimate "
        "the degrees of freedom",
        "PyMC `StudentT`",
        "y",
        "student-t",
    ),
    "stochastic-volatility": _family(
        "a return with mean 0 whose variance changes; eta is the log variance",
        r"$y \sim N(0, e^\eta)$",
        r"log of the variance: $\log \text{Var}(y) = \eta$",
        "`stochvol` in R-INLA; the package stochvol",
        "-",
        "returns",
        "stochastic-volatility",
    ),
    "binomial": _family(
        "a number of successes in a known number of trials",
        r"$y \sim \text{Binomial}(n, p)$, where $n$ is the `trials=`",
        _LOGIT,
        "`binomial()` with `cbind(hits, misses)`; `binomial` with `Ntrials` in R-INLA",
        "statsmodels `Binomial`",
        "hits",
        "binomial",
        ', trials="n"',
    ),
    "poisson": _family(
        "a count whose variance is its mean",
        r"$y \sim \text{Poisson}(\mu)$",
        _LOG,
        "`poisson()` with `offset(log(E))`; `poisson` with `E` in R-INLA",
        "statsmodels `Poisson` with `exposure=`",
        "deaths",
        "poisson",
        ', exposure="expected"',
    ),
    "truncated-poisson": _family(
        "a count of at least 1, where zeros cannot be observed",
        rf"{_TRUNCATED} the Poisson distribution with mean $\mu$",
        _LOG,
        "`truncated_poisson` in glmmTMB, `pospoisson` in VGAM",
        "statsmodels `TruncatedLFPoisson`",
        "size",
        "truncated-poisson",
    ),
    "beta-binomial": _family(
        "a number of successes that varies more than a binomial one",
        r"$y \sim \text{Binomial}(n, P)$ with $P \sim \text{Beta}(p\,\phi, (1-p)\,\phi)$, where $\phi$ is the "
        r"precision and $n$ the `trials=`; variance $n p (1-p)\,(1 + (n-1)/(1+\phi))$",
        _LOGIT,
        "`betabinomial` in glmmTMB (`sigma` is our precision) and in R-INLA, `beta_binomial()` in brms (`phi`)",
        "PyMC `BetaBinomial`",
        "hits",
        "beta-binomial",
        ', trials="n"',
    ),
    "negative-binomial": _family(
        "a count with overdispersion, whose variance grows with the square of its mean",
        rf"negative binomial with mean $\mu$ and {_NB2}; a large size is nearly a Poisson distribution",
        _LOG,
        "`nbinom2` in glmmTMB (`sigma` is our size), `glmer.nb` and `glm.nb` (`theta`), `nb()` in mgcv (`theta`), "
        "`negbinomial()` in brms (`shape`), `nbinomial` in R-INLA (`size`)",
        "statsmodels `NegativeBinomial` (`alpha` is 1/size)",
        "deaths",
        "negative-binomial",
        ', exposure="expected"',
    ),
    "negative-binomial-1": _family(
        "a count with overdispersion, whose variance is a multiple of its mean",
        rf"negative binomial with mean $\mu$ and {_NB1}; a small dispersion is nearly a Poisson distribution",
        _LOG,
        "`nbinom1` in glmmTMB (`sigma` is our dispersion)",
        "statsmodels `NegativeBinomialP(p=1)`",
        "deaths",
        "negative-binomial-1",
    ),
    "hurdle-poisson": _family(
        "a count whose zeros have a model of their own",
        rf"{_HURDLE} the Poisson distribution with mean $\mu$",
        _LOG_ZERO,
        "`truncated_poisson` with `ziformula` in glmmTMB, `hurdle_poisson()` in brms, `zeroinflatedpoisson0` in "
        "R-INLA; `hurdle` in pscl models "
        r"$P(y > 0)$, so its zero part has the other sign",
        "statsmodels `HurdleCountModel`: its zero part is a Poisson model; bambi `hurdle_poisson`: " + _PSI,
        "visits",
        "hurdle-poisson",
        ', zero="~ x"',
    ),
    "zero-inflated-poisson": _family(
        "a count with more zeros than a Poisson one",
        rf"{_ZERO} the Poisson distribution with mean $\mu$ and $\pi$ is the probability of an extra zero",
        _LOG_ZERO,
        "`poisson` with `ziformula` in glmmTMB, `zeroinfl` in pscl, `zero_inflated_poisson()` in brms, "
        "`zeroinflatedpoisson1` in R-INLA",
        "statsmodels `ZeroInflatedPoisson`; bambi `zero_inflated_poisson`: " + _PSI,
        "visits",
        "zero-inflated-poisson",
        ', zero="~ x"',
    ),
    "truncated-negative-binomial": _family(
        "a count of at least 1 with overdispersion, where zeros cannot be observed",
        f"{_TRUNCATED} {_NB2_P0}",
        _LOG,
        "`truncated_nbinom2` in glmmTMB",
        "statsmodels `TruncatedLFNegativeBinomialP`",
        "size",
        "truncated-negative-binomial",
    ),
    "truncated-negative-binomial-1": _family(
        "a count of at least 1 with overdispersion proportional to its mean, where zeros cannot be observed",
        f"{_TRUNCATED} {_NB1_P0}",
        _LOG,
        "`truncated_nbinom1` in glmmTMB",
        "-",
        "size",
        "truncated-negative-binomial-1",
    ),
    "hurdle-negative-binomial": _family(
        "a count with overdispersion whose zeros have a model of their own",
        f"{_HURDLE} {_NB2_P0}",
        _LOG_ZERO,
        "`truncated_nbinom2` with `ziformula` in glmmTMB, `hurdle_negbinomial()` in brms, `zeroinflatednbinomial0` in "
        "R-INLA; `hurdle` in pscl models "
        r"$P(y > 0)$, so its zero part has the other sign",
        'statsmodels `HurdleCountModel(dist="negbin")`; bambi `hurdle_negativebinomial`: ' + _PSI,
        "visits",
        "hurdle-negative-binomial",
        ', zero="~ x"',
    ),
    "zero-inflated-negative-binomial": _family(
        "a count with overdispersion and extra zeros",
        rf"{_ZERO} {_NB2_P0} and $\pi$ is the probability of an extra zero",
        _LOG_ZERO,
        "`nbinom2` with `ziformula` in glmmTMB, `zero_inflated_negbinomial()` in brms, `zeroinflatednbinomial1` in "
        "R-INLA",
        "statsmodels `ZeroInflatedNegativeBinomialP`; bambi `zero_inflated_negativebinomial`: " + _PSI,
        "visits",
        "zero-inflated-negative-binomial",
        ', zero="~ x"',
    ),
    "hurdle-negative-binomial-1": _family(
        "a count with overdispersion proportional to its mean, whose zeros have a model of their own",
        f"{_HURDLE} {_NB1_P0}",
        _LOG_ZERO,
        "`truncated_nbinom1` with `ziformula` in glmmTMB",
        "-",
        "visits",
        "hurdle-negative-binomial-1",
    ),
    "zero-inflated-negative-binomial-1": _family(
        "a count with overdispersion proportional to its mean, and extra zeros",
        rf"{_ZERO} {_NB1_P0} and $\pi$ is the probability of an extra zero",
        _LOG_ZERO,
        "`nbinom1` with `ziformula` in glmmTMB",
        "-",
        "visits",
        "zero-inflated-negative-binomial-1",
    ),
    "exponential": _family(
        "a duration with a constant hazard, perhaps censored",
        r"density $p(t) = e^\eta \exp(-t\,e^\eta)$, survival $P(T > t) = \exp(-t\,e^\eta)$",
        r"log of the hazard: $\log h(t) = \eta$",
        '`survreg(dist = "exponential")`: its coefficients have the other sign; `exponentialsurv` in R-INLA: '
        "the same sign; `exponential()` in brms: the other sign",
        "bambi `exponential`: its coefficients have the other sign",
        "cens(weeks, event)",
        "exponential",
    ),
    "gamma": _family(
        "a positive amount whose sd is proportional to its mean",
        r"gamma with mean $\mu$ and variance $\mu^2/\text{shape}$: "
        r"$p(y) = (k/\mu)^k\, y^{k-1} e^{-k y/\mu}/\Gamma(k)$, where $k$ is the shape",
        r"log: $\log \mu = \eta$",
        '`Gamma(link = "log")`; `sigma` of glmmTMB is $1/\\sqrt{\\text{shape}}$, `shape` of brms is our shape; '
        "`gamma` in R-INLA",
        'statsmodels `Gamma(link=Log())`, bambi with `link="log"`; the default of both is the inverse link',
        "cost",
        "gamma",
    ),
    "weibull": _family(
        "a duration whose hazard rises or falls with time, perhaps censored",
        r"density $p(t) = k\, t^{k-1} e^\eta \exp(-t^k e^\eta)$, survival $P(T > t) = \exp(-t^k e^\eta)$, where $k$ is "
        r"the shape: the hazard rises with time if $k > 1$ and falls if $k < 1$",
        r"log of the hazard: $\log h(t) = \eta + \log k + (k - 1) \log t$",
        "`survreg`: its coefficients are $-\\beta/\\text{shape}$, its scale is $1/\\text{shape}$; `weibull()` in brms: "
        "coefficients $-\\beta/\\text{shape}$ for the mean duration, the same shape; `weibullsurv` in R-INLA with "
        "`variant = 0`: the same coefficients and shape",
        "lifelines `WeibullAFTFitter`, bambi `weibull`: their coefficients are $-\\beta/\\text{shape}$",
        "cens(weeks, event)",
        "weibull",
    ),
    "tweedie": _family(
        "an amount of at least 0 that is often exactly 0",
        r"a sum of a Poisson number of gamma amounts, with mean $\mu$ and variance "
        r"$\text{dispersion}\;\mu^{\text{power}}$, where the power lies between 1 and 2",
        _LOG,
        "`tw()` in mgcv, `tweedie` in glmmTMB, sdmTMB and R-INLA",
        "statsmodels `Tweedie`, scikit-learn `TweedieRegressor`",
        "rain",
        "tweedie",
    ),
    "beta": _family(
        "a proportion strictly between 0 and 1",
        r"$y \sim \text{Beta}(\mu\,\phi, (1-\mu)\,\phi)$ with mean $\mu$ and variance $\mu(1-\mu)/(1 + \phi)$, where "
        r"$\phi$ is the precision",
        r"logit: $\log(\mu/(1-\mu)) = \eta$",
        "`beta_family` in glmmTMB (`sigma` is our precision), `betar()` in mgcv, `betareg`, `Beta()` in brms "
        "(`phi`), `beta` in R-INLA",
        "statsmodels `BetaModel`",
        "share",
        "beta",
    ),
    "bernoulli": _family(
        "one of two outcomes, 0 or 1, with a logit link",
        r"$P(y = 1) = p$",
        _LOGIT,
        "`binomial()`; `glmer(..., nAGQ = 25)` comes closest to our default answers",
        "statsmodels `Logit`, scikit-learn `LogisticRegression`",
        "ill",
        "bernoulli",
    ),
    "probit": _family(
        "one of two outcomes, 0 or 1, with a probit link",
        r"$P(y = 1) = p$",
        r"probit: $p = \Phi(\eta)$, where $\Phi$ is the normal distribution function",
        '`binomial(link = "probit")`',
        "statsmodels `Probit`",
        "ill",
        "probit",
    ),
    "ordinal": _family(
        "one of several ordered levels, by proportional odds",
        r"$P(y \le k) = 1/(1 + e^{\eta - b_k})$ for levels $0, 1, \dots$, where $b_0 < b_1 < \dots$ are the cutpoints",
        "cumulative logit: a positive coefficient makes higher levels more probable. There is no intercept",
        "`polr` in MASS, `clm` and `clmm` in ordinal, `cumulative()` in brms: the same signs; `ocat()` in mgcv; `pom` "
        "in R-INLA",
        "statsmodels `OrderedModel`",
        "rating",
        "ordinal",
    ),
    "ordinal-probit": _family(
        "one of several ordered levels, with a probit link",
        r"$P(y \le k) = \Phi(b_k - \eta)$ for levels $0, 1, \dots$, where $b_0 < b_1 < \dots$ are the cutpoints and "
        r"$\Phi$ is the normal distribution function",
        "cumulative probit: a positive coefficient makes higher levels more probable. There is no intercept",
        '`polr(method = "probit")`, `clmm(link = "probit")`, `cumulative("probit")` in brms: the same signs',
        'statsmodels `OrderedModel(distr="probit")`',
        "rating",
        "ordinal-probit",
    ),
}
FAMILIES["stochastic-volatility"]["example"] = (
    'fit = fenchel.fit("returns ~ 1 + ar1(day)", data, family="stochastic-volatility")'
)

_SD = "sd: half-normal with P(sd > 5) = 0.05"
_SD3 = "sd: half-normal with P(sd > 3) = 0.05"
_SD_EACH = "an sd for each: half-normal with P(sd > 5) = 0.05"
_RANGE = "range: P(range < r) = 0.05, where r is a twentieth of the extent of the data"
_SERIES = "linear in the number of time steps"
_GRAPH = "one unknown for each region, and a sparse Cholesky factorisation of the graph"


def _term(write: str, line: str, law: str, prior: str, r: str, cost: str, example: str) -> dict[str, str]:
    return {
        "write": write,
        "in one line": line,
        "model of the effects": law,
        "hyperparameters and their priors": prior,
        "in R": r,
        "cost": cost,
        "example": f"fit = fenchel.fit({example})",
    }


TERMS: dict[str, dict[str, str]] = {
    "group": _term(
        "(1|g), (x|g)",
        "a random intercept for each group, and random slopes",
        r"$u_g \sim N(0, S)$, independent between groups",
        f"{_SD_EACH}; correlations: uniform, LKJ(1)",
        "`(1|g)`, `(x|g)`, `(x||g)` in lme4, glmmTMB and brms",
        "linear in the number of groups, for the groups of one term",
        '"ill ~ visit + (visit|child)", data, family="bernoulli"',
    ),
    "iid": _term(
        "iid(g)",
        "independent effects of groups, the same as `(1|g)`",
        r"$u_g \sim N(0, \text{sd}^2)$",
        _SD,
        '`(1|g)` in lme4; `f(g, model = "iid")` in R-INLA; `s(g, bs = "re")` in mgcv',
        "as `(1|g)`",
        '"y ~ x + iid(g)", data',
    ),
    "mm": _term(
        "mm(a, b)",
        "effects of groups where each row belongs to several groups",
        r"$u \sim N(0, \text{sd}^2 I)$; the effect of a row is the mean of the effects of its groups",
        _SD,
        "`mm()` in brms",
        "one unknown for each group",
        '"score ~ x + mm(first_school, second_school)", data',
    ),
    "s": _term(
        "s(x)",
        "a smooth curve of a covariate, or a smooth surface of two covariates in one unit",
        r"a penalised spline: its straight line is a fixed effect, and the rest is $N(0, \text{sd}^2 K)$, where $K$ is "
        "the inverse of the penalty",
        _SD,
        "`s()` in mgcv and brms",
        "`k` unknowns: 20 by default, and 30 for a surface of two covariates",
        '"y ~ s(age, by=sex) + sex", data',
    ),
    "te": _term(
        "te(x, z)",
        "a smooth surface of two covariates in different units",
        "a tensor product of two splines, with a penalty along each covariate",
        _SD_EACH,
        "`te()` in mgcv",
        "`k` times `k` unknowns; `k` is 5 by default",
        '"y ~ te(temperature, humidity)", data',
    ),
    "ti": _term(
        "ti(x, z)",
        "the interaction part of a smooth surface, to add to a curve of each covariate",
        "as `te`, without the curves of each covariate alone",
        _SD_EACH,
        "`ti()` in mgcv",
        "as `te`",
        '"y ~ s(x) + s(z) + ti(x, z)", data',
    ),
    "gp": _term(
        "gp(x, z)",
        "a Gaussian process over one or several covariates",
        r"$f \sim GP(0, \text{sd}^2 k)$, where $k$ is an RBF kernel or a Matern kernel of smoothness 1/2, 3/2 or 5/2",
        f"{_SD3}; {_RANGE}",
        '`gp()` in brms, `s(x, bs = "gp")` in mgcv',
        "cubic in the number of different points, up to 1,000 points; inducing points beyond",
        '"y ~ gp(depth, age)", data',
    ),
    "vecchia": _term(
        "vecchia(x, z)",
        "a Gaussian process over many points, by nearest neighbours",
        "as `gp`, but the value at each point depends only on its nearest neighbours among the points before it",
        "as `gp`",
        '`gp_approx = "vecchia"` in GPBoost, `spNNGP`',
        "nearly linear in the number of points",
        '"price ~ area + vecchia(lon, lat)", data',
    ),
    "field": _term(
        "matern(x, y)",
        "a spatial field: a Gaussian process with a Matern covariance over points in the plane",
        "the Matern covariance, by a stochastic differential equation (SPDE) on a mesh of triangles",
        f"{_SD3}; {_RANGE}; the smoothness is chosen by the evidence",
        "`inla.spde2.pcmatern` in R-INLA, `sdmTMB`",
        "the number of mesh nodes to the power 1.5; it does not grow with the number of points",
        '"temperature ~ elevation + matern(x, y)", data',
    ),
    "matern": _term(
        "matern(t)",
        "a stationary process in time, at regular or irregular times",
        "the Matern covariance with smoothness nu of 1/2, 3/2 or 5/2",
        f"{_SD3}; range: P(range < r) = 0.05, where r is the mean time step",
        '`f(t, model = "ou")` in R-INLA for nu = 1/2, `ou()` in glmmTMB',
        "linear in the number of times",
        '"y ~ matern(hour, nu=1.5)", data',
    ),
    "rw1": _term(
        "rw1(t)",
        "a random walk: the effects of neighbouring times are alike",
        r"$u_{t+1} - u_t \sim N(0, c\,\text{sd}^2)$, where the constant $c$ makes sd the typical sd of an effect, "
        "and not that of a step",
        _SD,
        '`f(t, model = "rw1", scale.model = TRUE)` in R-INLA',
        _SERIES,
        '"deaths ~ rw1(year)", data, family="poisson"',
    ),
    "rw2": _term(
        "rw2(t)",
        "a smooth trend: a random walk of second order",
        r"$u_{t+2} - 2u_{t+1} + u_t \sim N(0, c\,\text{sd}^2)$, where the constant $c$ makes sd the typical departure "
        "from the straight line; the line is a fixed effect",
        _SD,
        '`f(t, model = "rw2", scale.model = TRUE)` in R-INLA; close to `s(t)` in mgcv',
        _SERIES,
        '"y ~ rw2(year)", data',
    ),
    "ar1": _term(
        "ar1(t)",
        "a stationary autoregression of first order",
        r"$\text{Var}(u_t) = \text{sd}^2$, $\text{corr}(u_t, u_{t+k}) = \phi^k$",
        f"{_SD3}; phi: 2 atanh phi ~ N(2, 1.5^2), which has 95 % between -0.44 and 0.99",
        '`ar1()` in glmmTMB, `corAR1` in nlme, `f(t, model = "ar1")` in R-INLA',
        _SERIES,
        '"y ~ ar1(day, by=subject)", data',
    ),
    "ar": _term(
        "ar(t, 2)",
        "a stationary autoregression of order p, here 2",
        r"$u_t = \phi_1 u_{t-1} + \dots + \phi_p u_{t-p} + \epsilon_t$, described by its sd and its partial "
        "autocorrelations",
        f"{_SD3}; partial autocorrelations r: 2 atanh r ~ N(2, 1.5^2) for the first, density proportional to "
        "1 - r^2 for the others",
        '`f(t, model = "ar", order = p)` in R-INLA',
        _SERIES,
        '"y ~ ar(day, p=2)", data',
    ),
    "seasonal": _term(
        "seasonal(t, 12)",
        "a seasonal effect that may change slowly",
        r"the sum over any period is $N(0, c\,\text{sd}^2)$, where the constant $c$ makes sd the typical sd of an "
        "effect; the part that repeats exactly is a fixed effect",
        _SD,
        '`f(t, model = "seasonal", season.length = 12)` in R-INLA',
        _SERIES,
        '"y ~ rw2(month) + seasonal(month, 12)", data',
    ),
    "icar": _term(
        "icar(r)",
        "effects of regions whose neighbours are alike (intrinsic conditional autoregression)",
        r"$u_r - u_s \sim N(0, c\,\text{sd}^2)$ for neighbours, where the constant $c$ makes sd the typical sd of an "
        "effect; effects sum to 0 in each connected part of the map",
        _SD,
        '`f(r, model = "besag")` in R-INLA, `s(r, bs = "mrf")` in mgcv, `car(type = "icar")` in brms',
        _GRAPH,
        '"deaths ~ icar(county)", data, family="poisson", graphs={"county": W}',
    ),
    "bym": _term(
        "bym(r)",
        "effects of regions: a part that is alike in neighbours plus an independent part (Besag, York and Mollie)",
        "`icar(r)` plus `iid(r)`",
        _SD_EACH,
        '`f(r, model = "bym")` in R-INLA',
        _GRAPH,
        '"deaths ~ bym(county, W)", data, family="poisson"',
    ),
    "bym2": _term(
        "bym2(r)",
        "effects of regions: the model of Besag, York and Mollie with one sd and the share of its variance that is "
        "spatial",
        r"$\text{sd}\,(\sqrt{1-\phi}\,v + \sqrt{\phi}\,u)$, where $u$ is a scaled `icar` and $v$ is independent "
        "between regions",
        f"{_SD}; the share phi: logit phi ~ N(0, 1.8^2), nearly uniform",
        '`f(r, model = "bym2")` in R-INLA, `car(type = "bym2")` in brms',
        _GRAPH,
        '"deaths ~ smoking + bym2(county, W)", data, family="poisson"',
    ),
    "leroux": _term(
        "leroux(r)",
        "effects of regions between independent ones and `icar` (Leroux)",
        r"precision matrix $Q = ((1-\rho) I + \rho R)/\text{sd}^2$, where $R$ is the structure matrix of `icar`",
        f"{_SD}; rho: logit rho ~ N(0, 1.8^2), nearly uniform",
        '`S.CARleroux` in CARBayes, `f(r, model = "besagproper2")` in R-INLA',
        _GRAPH,
        '"deaths ~ leroux(county, W)", data, family="poisson"',
    ),
    "generic": _term(
        "generic(g, R)",
        "effects with a precision matrix that you give",
        r"precision matrix $Q = R/\text{sd}^2$",
        _SD,
        '`f(g, model = "generic0")` in R-INLA; for a covariance matrix write `(1|gr(g, cov=A))`, as in brms',
        "a sparse Cholesky factorisation of R",
        '"y ~ generic(g, R)", data',
    ),
    "interact": _term(
        "interact(icar(r), rw1(t))",
        "an interaction of two terms, as space by time (types I to IV of Knorr-Held)",
        "the precision matrix is the Kronecker product of those of the two terms, with the constraints that both need",
        _SD,
        "`group=` and `control.group=` of `f()` in R-INLA",
        "one unknown for each combination of levels",
        '"deaths ~ icar(county, W) + rw1(year) + interact(icar(county, W), rw1(year))", data, family="poisson"',
    ),
}

PYTHON_TERMS = {
    "group": "statsmodels `MixedLM`, bambi `(x|g)`, GPBoost `group_data=`",
    "iid": "bambi `(1|g)`, GPBoost `group_data=`",
    "mm": "PyMC, written by hand",
    "s": "pyGAM `s(0)`, statsmodels `GLMGam`, bambi `hsgp(x)`",
    "te": "pyGAM `te(0, 1)`",
    "ti": "-",
    "gp": "scikit-learn `GaussianProcessRegressor`, GPyTorch, bambi `hsgp(x, z)`",
    "vecchia": 'GPBoost `gp_approx="vecchia"`',
    "field": "GPBoost `gp_coords=`; PyMC, written by hand",
    "matern": "GPflow and GPyTorch with a Matern kernel",
    "rw1": 'statsmodels `UnobservedComponents("local level")`',
    "rw2": 'statsmodels `UnobservedComponents("smooth trend")`',
    "ar1": "statsmodels `UnobservedComponents(autoregressive=1)`",
    "ar": "statsmodels `UnobservedComponents(autoregressive=p)`",
    "seasonal": "statsmodels `UnobservedComponents(seasonal=12)`",
    "icar": "PyMC `ICAR`",
    "bym": "PyMC, written by hand",
    "bym2": "PyMC `ICAR` with a share, written by hand",
    "leroux": "close to PyMC `CAR`",
}

# R^2 by the formulas of Nakagawa from lme4's fits of three models and by performance::r2, with log likelihoods and residuals.
# Rscript benchmarks/diagnostics.R > benchmarks/diagnostics.json
suppressMessages({library(lme4); library(glmmTMB); library(performance); library(jsonlite)})

variances <- function(m, residual) {  # fixed, groups (slopes as Johnson has them), residual
  X <- model.matrix(m)
  groups <- sum(sapply(VarCorr(m), function(S) { Z <- X[, colnames(S), drop = FALSE]; mean(rowSums((Z %*% S) * Z)) }))
  c(fixed = var(drop(X %*% fixef(m))), groups = groups, residual = unname(residual))
}
shares <- function(v) c(marginal = v[["fixed"]] / sum(v), conditional = (v[["fixed"]] + v[["groups"]]) / sum(v))
theirs <- function(m) { both <- suppressWarnings(r2(m)); list(marginal = both$R2_marginal[[1]], conditional = both$R2_conditional[[1]]) }
entry <- function(data, m, residual, ml = m) {
  v <- variances(m, residual)
  list(data = data, variances = as.list(v), r2 = as.list(shares(v)), performance = theirs(m), log_lik = as.numeric(logLik(ml)), df = attr(logLik(ml), "df"),
       pearson = unname(residuals(ml, "pearson")), deviance = unname(residuals(ml, "deviance")))
}

out <- list(R = paste(R.version$major, R.version$minor, sep = "."), lme4 = as.character(packageVersion("lme4")),
            performance = as.character(packageVersion("performance")), glmmTMB = as.character(packageVersion("glmmTMB")))
sleep <- lmer(Reaction ~ Days + (Days | Subject), sleepstudy)
out$sleepstudy <- entry(sleepstudy, sleep, sigma(sleep)^2, update(sleep, REML = FALSE))

trials <- cbind(incidence, size - incidence) ~ period + (1 | herd)
quadrature <- glmer(trials, cbpp, family = binomial, nAGQ = 20)
out$cbpp <- entry(cbpp, quadrature, pi^2 / 3, glmer(trials, cbpp, family = binomial))
reml <- glmmTMB(trials, cbpp, family = binomial, REML = TRUE)
out$cbpp$reml <- c(list(groups = VarCorr(reml)$cond$herd[1, 1]), theirs(reml))

ticks <- data.frame(ticks = grouseticks$TICKS, height = as.numeric(scale(grouseticks$HEIGHT)), brood = grouseticks$BROOD)
empty <- glmer(ticks ~ 1 + (1 | brood), ticks, family = poisson)
mean_count <- exp(fixef(empty)[[1]] + VarCorr(empty)$brood[1, 1] / 2)
out$grouse <- entry(ticks, glmer(ticks ~ height + (1 | brood), ticks, family = poisson, nAGQ = 9), log(1 + 1 / mean_count),
                    glmer(ticks ~ height + (1 | brood), ticks, family = poisson))
out$grouse$null <- list(fixed = fixef(empty)[[1]], groups = VarCorr(empty)$brood[1, 1])  # performance's mean is exp(fixed)
cat(toJSON(out, dataframe = "columns", auto_unbox = TRUE, digits = 8))

# lme4's fits.

PACKAGE <- "lme4"
library(lme4)
SETTINGS <- list(
  longitudinal_binary = "glmer, nAGQ = 25",
  crossed_labels = "glmer, bobyqa: Laplace"
)

told <- function(model) {
  sds <- as.data.frame(VarCorr(model))
  list(mean = fixef(model), sd = sqrt(diag(as.matrix(vcov(model)))), group = sds$sdcor, target = "maximum")
}

longitudinal_binary <- function(data) {
  out <- told(glmer(y ~ x + treated + (1 | g), data$train, binomial, nAGQ = 25))
  out$mean <- out$mean[-1]; out$sd <- out$sd[-1]
  out
}

crossed_labels <- function(data) {
  formula <- y ~ anger + male + scold + shout + self + (1 | person) + (1 | item)
  told(glmer(formula, data$train, binomial, control = glmerControl(optimizer = "bobyqa")))
}

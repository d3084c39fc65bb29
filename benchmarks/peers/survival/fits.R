# survival's fits.

PACKAGE <- "survival"
library(survival)
SETTINGS <- list(survival_frailty = paste(
  'coxph, frailty(g, distribution = "gaussian"), REML by its penalised likelihood; survreg has no frailty, and a partial',
  "likelihood is another model than the Weibull of the truth: shown, not counted"
))

survival_frailty <- function(data) {
  model <- coxph(Surv(y, event) ~ x + treated + frailty(g, distribution = "gaussian"), data$train)
  se <- sqrt(diag(vcov(model)))[seq_along(coef(model))]
  list(mean = coef(model), sd = se, group = sqrt(model$history[[1]]$theta), target = "another model")
}

# glmmTMB's fits: Laplace's approximation by automatic differentiation.

PACKAGE <- "glmmTMB"
library(glmmTMB)
SETTINGS <- list(
  longitudinal_binary = "glmmTMB, binomial, its defaults",
  crossed_labels = "glmmTMB, binomial, its defaults",
  full_posterior = "glmmTMB, binomial, its defaults; eta and its se by predict: maximum likelihood"
)

told <- function(model) {
  sds <- sapply(VarCorr(model)$cond, function(part) attr(part, "stddev"))
  list(mean = fixef(model)$cond, sd = sqrt(diag(vcov(model)$cond)), group = sds, target = "maximum")
}

longitudinal_binary <- function(data) {
  out <- told(glmmTMB(y ~ x + treated + (1 | g), data$train, binomial))
  out$mean <- out$mean[-1]; out$sd <- out$sd[-1]
  out
}

crossed_labels <- function(data) {
  told(glmmTMB(y ~ anger + male + scold + shout + self + (1 | person) + (1 | item), data$train, binomial))
}

full_posterior <- function(data) {
  model <- glmmTMB(y ~ x + (x | g), data$train, binomial)
  eta <- predict(model, type = "link", se.fit = TRUE)
  part <- VarCorr(model)$cond$g
  list(mean = eta$fit, sd = eta$se.fit, theta = c(attr(part, "stddev"), attr(part, "correlation")[1, 2]), target = "maximum")
}

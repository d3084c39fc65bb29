# ordinal's fits.

PACKAGE <- "ordinal"
library(ordinal)
SETTINGS <- list(longitudinal_ordinal = "clmm, nAGQ = 10")

longitudinal_ordinal <- function(data) {
  train <- data$train
  train$y <- factor(train$y, ordered = TRUE)
  train$g <- factor(train$g)
  model <- clmm(y ~ x + treated + (1 | g), data = train, nAGQ = 10)
  keep <- names(model$beta)
  sds <- sapply(VarCorr(model), function(part) attr(part, "stddev"))
  list(mean = model$beta, sd = sqrt(diag(vcov(model)))[keep], group = sds, target = "maximum")
}

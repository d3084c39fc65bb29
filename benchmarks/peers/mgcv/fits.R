# mgcv's fits.

PACKAGE <- "mgcv"
library(mgcv)
SETTINGS <- list(
  counts_on_graph = 'gam, s(district, bs = "mrf") of full rank, REML; an independent part beside it has more coefficients than rows, which gam refuses',
  smooths = "gam, method = REML; sds with smoothing parameters unknown",
  satellite = 'bam, s(x, y, k = 400) + lon + lat, fREML, discrete'
)

counts_on_graph <- function(data) {
  train <- data$train
  train$district <- factor(train$district)
  near <- lapply(levels(train$district), function(level) {
    k <- as.integer(level)
    as.character(sort(c(data$edges$b[data$edges$a == k], data$edges$a[data$edges$b == k])))
  })
  names(near) <- levels(train$district)
  formula <- y ~ s(district, bs = "mrf", xt = list(nb = near)) + offset(log(E))
  model <- gam(formula, family = poisson, data = train, method = "REML")
  found <- predict(model, type = "link", se.fit = TRUE, unconditional = TRUE)
  list(mean = found$fit - log(train$E), sd = found$se.fit)
}

smooths <- function(data) {
  found <- lapply(split(data$train, data$train$set), function(part) {
    model <- gam(y ~ s(x0) + s(x1) + s(x2) + s(x3), data = part, method = "REML")
    predict(model, se.fit = TRUE, unconditional = TRUE)
  })
  list(mean = unlist(lapply(found, function(each) each$fit)), sd = unlist(lapply(found, function(each) each$se.fit)))
}

satellite <- function(data) {
  model <- bam(temperature ~ lon + lat + s(x, y, k = 400), data = data$train, discrete = TRUE)
  found <- predict(model, data$test, se.fit = TRUE)
  list(mean = found$fit, sd = sqrt(found$se.fit^2 + model$sig2))
}

# Marginal means, contrasts and slopes of six models by emmeans, and averages over the rows with errors by the delta method
# (what marginaleffects computes). Rscript benchmarks/marginal_means.R > benchmarks/marginal_means.json
suppressMessages({library(emmeans); library(MASS); library(jsonlite)})

frame_of <- function(x) { x <- as.data.frame(x); x[] <- lapply(x, function(v) if (is.factor(v)) as.character(v) else v); x }
row_average <- function(beta, V, rows, inverse) {  # average of inverse(X beta) over rows, and its error
  value <- function(b) mean(inverse(drop(rows %*% b)))
  h <- 1e-5
  slope <- sapply(seq_along(beta), function(j) { e <- replace(0 * beta, j, h); (value(beta + e) - value(beta - e)) / (2 * h) })
  c(estimate = value(beta), std_error = sqrt(drop(slope %*% V %*% slope)))
}

out <- list(R = paste(R.version$major, R.version$minor, sep = "."), emmeans = as.character(packageVersion("emmeans")))
models <- list(
  warpbreaks = list(data = warpbreaks, formula = breaks ~ wool * tension, family = "gaussian", specs = "tension", by = "wool"),
  toothgrowth = list(data = ToothGrowth, formula = len ~ supp * dose, family = "gaussian", specs = "supp", by = NULL,
                     along = "dose"),
  birthwt = list(data = transform(birthwt, race = factor(c("white", "black", "other")[race]))[c("low", "race", "smoke", "age", "lwt")],
                 formula = low ~ race + smoke + age + lwt, family = "binomial", specs = "race", by = NULL, along = "age"),
  quine = list(data = quine, formula = Days ~ Eth * Sex * Age, family = "poisson", specs = "Sex", by = "Eth"),
  warpbreaks_counts = list(data = warpbreaks, formula = breaks ~ wool + tension, family = "poisson",
               specs = "tension", by = NULL)
)
for (name in names(models)) {
  m <- models[[name]]
  data <- m$data
  data[] <- lapply(data, function(v) if (is.factor(v)) factor(as.character(v), levels = sort(unique(as.character(v)))) else v)
  if (name == "quine") data <- subset(data, !(Age == "F3" & Eth == "A" & Sex == "M" & Lrn == "SL"))  # unbalanced; every cell seen
  fit <- glm(m$formula, data = data, family = m$family)
  grid <- suppressMessages(emmeans(fit, m$specs, by = m$by))
  cells <- suppressMessages(emmeans(fit, m$specs, by = m$by, weights = "cells"))
  pair <- suppressMessages(pairs(grid, reverse = TRUE, adjust = "none"))
  keep <- function(x) frame_of(summary(x))[, !(names(summary(x)) %in% c("df", "asymp.LCL", "asymp.UCL", "lower.CL", "upper.CL", "z.ratio", "t.ratio", "p.value"))]
  X <- model.matrix(fit); levels_of <- levels(data[[m$specs]])
  averaged <- lapply(levels_of, function(level) {
    other <- data; other[[m$specs]] <- factor(level, levels = levels_of)
    row_average(coef(fit), vcov(fit), model.matrix(delete.response(terms(fit)), other, xlev = fit$xlevels), fit$family$linkinv)
  })
  out[[name]] <- list(data = frame_of(data), means = keep(grid), cells = keep(cells), pairs = keep(pair),
                      population = data.frame(level = levels_of, do.call(rbind, averaged)))
  if (!is.null(m$along)) {  # emtrends, and the slope of the mean averaged over the rows (avg_slopes)
    trends <- frame_of(summary(suppressMessages(emtrends(fit, m$specs, var = m$along))))
    h <- 1e-3 * sd(data[[m$along]]); up <- down <- data
    up[[m$along]] <- up[[m$along]] + h; down[[m$along]] <- down[[m$along]] - h
    both <- lapply(list(up, down), function(d) model.matrix(delete.response(terms(fit)), d, xlev = fit$xlevels))
    slope <- function(b) mean(fit$family$linkinv(drop(both[[1]] %*% b)) - fit$family$linkinv(drop(both[[2]] %*% b))) / (2 * h)
    step <- 1e-5; b <- coef(fit)
    g <- sapply(seq_along(b), function(j) { e <- replace(0 * b, j, step); (slope(b + e) - slope(b - e)) / (2 * step) })
    out[[name]]$slopes <- list(along = m$along, level = trends[[m$specs]], estimate = trends[[2]], SE = trends$SE,
                               average = slope(b), average_SE = sqrt(drop(g %*% vcov(fit) %*% g)))
  }
}
# ordered levels: contrasts of the latent, by polr
housing <- MASS::housing
rows <- housing[rep(seq_len(nrow(housing)), housing$Freq), c("Sat", "Infl", "Type", "Cont")]
rows[c("Infl", "Type", "Cont")] <- lapply(rows[c("Infl", "Type", "Cont")], function(v) factor(as.character(v)))
fit <- polr(Sat ~ Infl + Type + Cont, data = rows, Hess = TRUE)
pair <- suppressMessages(pairs(emmeans(fit, "Type"), reverse = TRUE, adjust = "none"))
out$housing <- list(data = frame_of(housing), pairs = frame_of(summary(pair))[c("contrast", "estimate", "SE")])
cat(toJSON(out, digits = 10, dataframe = "columns", auto_unbox = TRUE))

# What R finds in the tables of benchmarks/collapsed.py, which runs it:
#
#     Rscript --vanilla collapsed.R FOLDER      reads FOLDER/*.table.json, writes FOLDER/found.json
#
# glmer with 25 quadrature points for one effect a group and by Laplace's approximation for slopes; clmm with 10 points
# for levels and coxph with a Gaussian frailty for durations, whose baseline is free, both without slopes; glmmTMB by Laplace, for all but levels and durations. Seconds are of the processor, the second of two runs.

suppressMessages({library(lme4); library(glmmTMB); library(ordinal); library(survival); library(jsonlite)})

first <- function(data, kind, formula, points, group) switch(kind,
  binary = glmer(formula, data, binomial, nAGQ = points),
  trials = glmer(update(formula, cbind(y, trials - y) ~ .), data, binomial, nAGQ = points),
  counts = glmer(formula, data, poisson, nAGQ = points),
  spread = glmer.nb(formula, data),
  levels = clmm(formula, data = data, nAGQ = if (points > 1) 10 else 1),
  durations = coxph(Surv(y, event) ~ x + z + frailty(g, distribution = "gaussian"), data))

second <- function(data, kind, formula) switch(kind,
  binary = glmmTMB(formula, data, binomial),
  trials = glmmTMB(update(formula, cbind(y, trials - y) ~ .), data, binomial),
  counts = glmmTMB(formula, data, poisson),
  spread = glmmTMB(formula, data, nbinom2))

answers <- function(model) {
  if (inherits(model, "coxph")) {
    return(list(sds = sqrt(model$history[[1]]$theta), beta = coef(model), se = sqrt(diag(vcov(model)))))
  }
  if (inherits(model, "glmmTMB")) {
    return(list(sds = attr(VarCorr(model)$cond[[1]], "stddev"), beta = fixef(model)$cond,
                se = sqrt(diag(vcov(model)$cond)), log_lik = as.numeric(logLik(model))))
  }
  beta <- if (inherits(model, "clmm")) model$beta else fixef(model)
  se <- sqrt(diag(as.matrix(vcov(model))))
  list(sds = attr(VarCorr(model)[[1]], "stddev"), beta = beta, log_lik = as.numeric(logLik(model)),
       se = if (inherits(model, "clmm")) se[names(beta)] else se)
}

timed <- function(call) {
  for (k in 1:2) used <- system.time(model <- tryCatch(suppressMessages(suppressWarnings(call())), error = function(e) NULL))
  if (is.null(model)) return(NULL)
  c(list(seconds = used[["user.self"]] + used[["sys.self"]]), lapply(answers(model), unname))
}

folder <- commandArgs(TRUE)[1]
packages <- c("lme4", "glmmTMB", "ordinal", "survival")
versions <- lapply(setNames(packages, packages), function(p) as.character(packageVersion(p)))
found <- list(R = as.character(getRversion()), versions = versions, tables = list())
for (path in list.files(folder, pattern = "[.]table[.]json$", full.names = TRUE)) {
  kept <- fromJSON(path)
  data <- as.data.frame(kept$columns, stringsAsFactors = FALSE)
  for (column in names(kept$levels)) data[[column]] <- factor(data[[column]], kept$levels[[column]])
  data[[kept$group]] <- factor(data[[kept$group]])
  formula <- as.formula(gsub("|", " | ", kept$formula, fixed = TRUE))
  if (kept$kind == "levels") data[[all.vars(formula)[1]]] <- factor(data[[all.vars(formula)[1]]], ordered = TRUE)
  each <- list()
  if (!(kept$kind %in% c("levels", "durations") && kept$slopes))
    each$glmer <- timed(function() first(data, kept$kind, formula, if (kept$slopes) 1 else 25, kept$group))
  if (!(kept$kind %in% c("levels", "durations"))) each$glmmTMB <- timed(function() second(data, kept$kind, formula))
  found$tables[[kept$name]] <- each
  message(kept$name, " ", toString(lapply(each, function(e) round(e$seconds, 2))))
}
write(toJSON(found, auto_unbox = TRUE, digits = 6), file.path(folder, "found.json"))

# What lme4 and glmmTMB find in the data of examples/mixed_models.py; run by benchmarks/mixed_models.py --r.
#
#     Rscript mixed_models.R FOLDER        FOLDER/<model>.csv -> FOLDER/found.json
#
# Every model by each method that it has:
#   lmer REML             restricted maximum likelihood: exact, coefficients integrated out
#   glmmTMB REML          the same by Laplace's approximation, for any family; its coefficients at these sds
#   glmer Laplace         maximum likelihood, as glmer does it by default
#   glmer nAGQ=25         maximum likelihood by quadrature, for one group with one effect each
# Names are those of the example. Seconds are of the processor, the median of three runs, or of fewer that take long.

suppressMessages({library(lme4); library(glmmTMB); library(jsonlite)})

folder <- commandArgs(TRUE)[1]
read <- function(name) {
  data <- read.csv(file.path(folder, paste0(name, ".csv")))
  for (column in intersect(names(data), c("period", "year"))) data[[column]] <- factor(data[[column]])
  data
}

coefficients_of <- function(values) {
  names(values) <- sub("(Intercept)", "Intercept", names(values), fixed = TRUE)
  names(values) <- sub("^(machine|period|year|behaviour|situation|children)(.+)$", "\\1[T.\\2]", names(values))
  names(values) <- sub("I(age^2)", "I(age ** 2)", names(values), fixed = TRUE)
  values
}

# sds and correlations, `terms` says what the example calls each group
spread_of <- function(blocks, terms) {
  out <- list()
  for (group in names(terms)) {
    block <- blocks[[group]]; sd <- attr(block, "stddev"); term <- terms[[group]]
    if (length(sd) == 1) { out[[paste(term, "sd")]] <- sd[[1]]; next }
    words <- sub("(Intercept)", "intercept", names(sd), fixed = TRUE)
    for (i in seq_along(sd)) out[[paste(term, "sd", words[i])]] <- sd[[i]]
    out[[paste0(term, " correlation ", words[1], ", ", words[2])]] <- attr(block, "correlation")[1, 2]
  }
  out
}

timed <- function(fit) {
  seconds <- c()
  while (length(seconds) < 3 && sum(seconds) < 2) {
    used <- system.time(model <- fit())
    seconds <- c(seconds, used[["user.self"]] + used[["sys.self"]])
  }
  list(model = model, seconds = median(seconds))
}

by_lmer <- function(formula, data, terms) {
  run <- timed(function() lmer(formula, data, REML = TRUE))
  found <- c(as.list(coefficients_of(fixef(run$model))), spread_of(VarCorr(run$model), terms),
             list("noise sd" = sigma(run$model)))
  se <- as.list(coefficients_of(sqrt(diag(as.matrix(vcov(run$model))))))
  list(estimates = found, se = se, seconds = run$seconds)
}

by_glmer <- function(formula, data, family, terms, nodes) {
  control <- glmerControl(optimizer = "bobyqa", optCtrl = list(maxfun = 1e5))
  run <- timed(function() glmer(formula, data, family = family, nAGQ = nodes, control = control))
  se <- sqrt(diag(as.matrix(vcov(run$model)))); names(se) <- names(fixef(run$model))
  list(estimates = c(as.list(coefficients_of(fixef(run$model))), spread_of(VarCorr(run$model), terms)),
       se = as.list(coefficients_of(se)), seconds = run$seconds)
}

by_tmb <- function(formula, data, family, terms, size = FALSE) {
  run <- timed(function() glmmTMB(formula, data, family = family, REML = TRUE))
  # its own coefficients are the mode of coefficients and effects together; restricted maximum likelihood has those that
  # maximise the likelihood at its sds, as lmer does
  p <- run$model$fit$parfull; at <- function(name) unname(p[names(p) == name])
  map <- list(theta = factor(rep(NA, length(at("theta"))))); start <- list(theta = at("theta"))
  if (size) { map$betad <- factor(NA); start$betad <- at("betad") }
  model <- glmmTMB(formula, data, family = family, map = map, start = start)
  found <- c(as.list(coefficients_of(fixef(model)$cond)), spread_of(VarCorr(run$model)$cond, terms))
  if (size) found[["NegativeBinomial size"]] <- sigma(run$model)
  list(estimates = found, se = as.list(coefficients_of(sqrt(diag(vcov(model)$cond)))), seconds = run$seconds)
}

normal <- list(
  dyestuff = list(y ~ 1 + (1 | batch), c(batch = "(1|batch)")),
  pastes = list(y ~ 1 + (1 | batch/cask), c(batch = "(1|batch)", "cask:batch" = "(1|batch:cask)")),
  penicillin = list(y ~ 1 + (1 | plate) + (1 | sample), c(plate = "(1|plate)", sample = "(1|sample)")),
  sleep = list(y ~ days + (days | subject), c(subject = "(days|subject)")),
  "sleep, uncorrelated" = list(y ~ days + (days || subject),
                               c(subject = "(1|subject)", "subject.1" = "(0+days|subject)")),
  machines = list(y ~ machine + (1 | worker/machine),
                  c(worker = "(1|worker)", "machine:worker" = "(1|worker:machine)"))
)
others <- list(
  cattle = list(cbind(cases, size - cases) ~ period + (1 | herd), binomial(), c(herd = "(1|herd)")),
  contraception = list(used ~ age + I(age^2) + urban + children + (1 | district), binomial(),
                       c(district = "(1|district)")),
  toenails = list(infected ~ treated * month + (1 | patient), binomial(), c(patient = "(1|patient)")),
  aggression = list(yes ~ anger + man + behaviour + situation + (1 | person) + (1 | item), binomial(),
                    c(person = "(1|person)", item = "(1|item)")),
  ticks = list(ticks ~ year + height + (1 | brood) + (1 | place) + (1 | chick), poisson(),
               c(brood = "(1|brood)", place = "(1|place)", chick = "(1|chick)")),
  "ticks, chicks alone" = list(ticks ~ year + height + (1 | chick), poisson(), c(chick = "(1|chick)")),
  epilepsy = list(seizures ~ before * drug + age + visit + (visit | patient), poisson(),
                  c(patient = "(visit|patient)")),
  salamanders = list(count ~ mined + (1 | site), nbinom2(), c(site = "(1|site)"))
)

found <- list()
given <- function(models) Filter(function(name) file.exists(file.path(folder, paste0(name, ".csv"))), names(models))
for (name in given(normal)) {
  of <- normal[[name]]
  found[[name]] <- list("lmer REML" = by_lmer(of[[1]], read(name), of[[2]]))
}
for (name in given(others)) {
  of <- others[[name]]; data <- read(name); size <- name == "salamanders"
  found[[name]] <- list("glmmTMB REML" = by_tmb(of[[1]], data, of[[2]], of[[3]], size))
  # glmer is 50 s on the crossed answers, without converging
  if (!(name %in% c("salamanders", "aggression"))) found[[name]][["glmer Laplace"]] <- by_glmer(of[[1]], data, of[[2]], of[[3]], 1)
  if (name %in% c("cattle", "contraception", "toenails", "ticks, chicks alone"))
    found[[name]][["glmer nAGQ=25"]] <- by_glmer(of[[1]], data, of[[2]], of[[3]], 25)
}
versions <- list(R = paste(R.version$major, R.version$minor, sep = "."), lme4 = as.character(packageVersion("lme4")),
                 glmmTMB = as.character(packageVersion("glmmTMB")))
write_json(list(versions = versions, models = found), file.path(folder, "found.json"), auto_unbox = TRUE, digits = 10)

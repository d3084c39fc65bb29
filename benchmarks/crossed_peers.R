# Crossed effects by R on rows that crossed_peers.py hands over: prints one line of json.
#
#     Rscript --vanilla crossed_peers.R METHOD rows.csv

arguments <- commandArgs(TRUE)
method <- arguments[1]
data <- read.csv(arguments[2])
for (name in c("s", "d", "dept")) data[[name]] <- factor(data[[name]])
formula <- y ~ x + (1 | s) + (1 | d) + (1 | dept)
package <- if (startsWith(method, "glmmTMB")) "glmmTMB" else "lme4"
suppressPackageStartupMessages(library(package, character.only = TRUE))

began <- proc.time()
found <- switch(method,
  "lmer" = lmer(formula, data, REML = FALSE),
  "glmer nAGQ=0" = glmer(formula, data, family = binomial, nAGQ = 0, control = glmerControl(optimizer = "bobyqa")),
  "glmer nAGQ=1" = glmer(formula, data, family = binomial, nAGQ = 1, control = glmerControl(optimizer = "bobyqa")),
  "glmmTMB binomial" = glmmTMB(formula, data, family = binomial),
  "glmmTMB gaussian" = glmmTMB(formula, data, family = gaussian))
took <- proc.time() - began

if (package == "glmmTMB") {
  effects <- VarCorr(found)$cond
  sds <- sapply(effects, function(v) attr(v, "stddev"))
  names(sds) <- names(effects)
  fixed <- fixef(found)$cond
  noise <- if (method == "glmmTMB gaussian") sigma(found) else NA
} else {
  table <- as.data.frame(VarCorr(found))
  sds <- setNames(table$sdcor, table$grp)
  fixed <- fixef(found)
  noise <- if (method == "lmer") sigma(found) else NA
}
cat(jsonlite::toJSON(list(
  version = as.character(packageVersion(package)), r = as.character(getRversion()),
  cpu = unname(took["user.self"] + took["sys.self"]), wall = unname(took["elapsed"]),
  estimates = list(
    intercept = unname(fixed[1]), x = unname(fixed["x"]), s = unname(sds["s"]), d = unname(sds["d"]),
    dept = unname(sds["dept"]), noise = noise
  ), log_likelihood = as.numeric(logLik(found))
), auto_unbox = TRUE, digits = 8, na = "null"), "\n")

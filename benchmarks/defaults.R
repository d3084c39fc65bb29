# Tables of R's packages, and what R finds in them; run by benchmarks/defaults.py.
#
#     Rscript --vanilla defaults.R data FOLDER      FOLDER/<table>.json: columns, and the levels of factors
#     Rscript --vanilla defaults.R fit  FOLDER      FOLDER/found.json: estimates, standard errors, seconds, versions
#
# lmer by REML; glmer by maximum likelihood with 25 quadrature points (one group) or by Laplace's approximation (several);
# glmmTMB by Laplace; clmm with 10 points; coxph with a Gaussian frailty; gam by REML. Seconds are of the processor.

suppressMessages({library(lme4); library(nlme); library(MASS); library(glmmTMB); library(ordinal); library(survival)
                  library(mgcv); library(jsonlite)})
of <- function(name, package) {e <- new.env(); data(list = name, package = package, envir = e); as.data.frame(get(name, e))}

toenail <- of("toenail", "HSAUR3"); toenail$y <- as.integer(toenail$outcome == "moderate or severe")
bacteria <- MASS::bacteria; bacteria$y <- as.integer(bacteria$y == "y"); bacteria$late <- as.integer(bacteria$week > 2)
respiratory <- of("respiratory", "geepack"); respiratory$id <- interaction(respiratory$center, respiratory$id, drop = TRUE)
schizophrenia <- of("schizophrenia2", "HSAUR3"); schizophrenia$y <- as.integer(schizophrenia$disorder == "present")
schizophrenia <- schizophrenia[!is.na(schizophrenia$y), c("y", "onset", "month", "subject")]
if (present <- requireNamespace("mlmRev", quietly = TRUE)) {
  contraception <- of("Contraception", "mlmRev"); contraception$y <- as.integer(contraception$use == "Y")
  contraception$age2 <- contraception$age^2
} else message("mlmRev is not installed: no table Contraception")
verbal <- lme4::VerbAgg; verbal$y <- as.integer(verbal$r2 == "Y")
cbpp <- lme4::cbpp
epil <- MASS::epil
oats <- MASS::oats; oats$nitro <- as.numeric(sub("cwt", "", oats$N)); oats$BV <- interaction(oats$B, oats$V, drop = TRUE)
cake <- lme4::cake; cake$rr <- interaction(cake$recipe, cake$replicate, drop = TRUE)
machines <- as.data.frame(nlme::Machines); machines$WM <- interaction(machines$Worker, machines$Machine, drop = TRUE)
pixel <- as.data.frame(nlme::Pixel); pixel$DS <- interaction(pixel$Dog, pixel$Side, drop = TRUE); pixel$day2 <- pixel$day^2
owls <- of("Owls", "glmmTMB"); owls$sibs <- owls$SiblingNegotiation
ticks <- lme4::grouseticks
arabidopsis <- lme4::Arabidopsis
arabidopsis$fruits <- arabidopsis$total.fruits; arabidopsis$nutrient <- factor(arabidopsis$nutrient)
wine <- ordinal::wine; wine$level <- as.integer(wine$rating) - 1L
rats <- subset(survival::rats, sex == "f")
kidney <- survival::kidney; kidney$female <- as.integer(kidney$sex == 2)
retina <- survival::retinopathy; retina$adult <- as.integer(retina$type == "adult")
set.seed(2); curves <- gamSim(1, n = 400, dist = "normal", scale = 2, verbose = FALSE)[, c("y", "x0", "x1", "x2", "x3")]
ergo <- as.data.frame(nlme::ergoStool)

tables <- list(
  sleepstudy = list(lme4::sleepstudy, "lmer", Reaction ~ Days + (Days | Subject)),
  Dyestuff = list(lme4::Dyestuff, "lmer", Yield ~ 1 + (1 | Batch)),
  Dyestuff2 = list(lme4::Dyestuff2, "lmer", Yield ~ 1 + (1 | Batch)),
  Penicillin = list(lme4::Penicillin, "lmer", diameter ~ 1 + (1 | plate) + (1 | sample)),
  Pastes = list(lme4::Pastes, "lmer", strength ~ 1 + (1 | batch) + (1 | sample)),
  cake = list(cake, "lmer", angle ~ recipe + temp + (1 | rr)),
  Rail = list(as.data.frame(nlme::Rail), "lmer", travel ~ 1 + (1 | Rail)),
  Orthodont = list(as.data.frame(nlme::Orthodont), "lmer", distance ~ age * Sex + (age | Subject)),
  Machines = list(machines, "lmer", score ~ Machine + (1 | Worker) + (1 | WM)),
  oats = list(oats, "lmer", Y ~ nitro + V + (1 | B) + (1 | BV)),
  ergoStool = list(ergo, "lmer", effort ~ Type + (1 | Subject)),
  Pixel = list(pixel, "lmer", pixel ~ day + day2 + (1 | Dog) + (1 | DS)),
  bacteria = list(bacteria, "binary", y ~ trt + late + (1 | ID)),
  ohio = list(of("ohio", "geepack"), "binary", resp ~ age + smoke + (1 | id)),
  toenail = list(toenail, "binary", y ~ treatment * time + (1 | patientID)),
  respiratory = list(respiratory, "binary", outcome ~ treat + sex + age + baseline + (1 | id)),
  schizophrenia = list(schizophrenia, "binary", y ~ onset + month + (1 | subject)),
  Contraception = if (present) list(contraception, "binary", y ~ age + age2 + urban + livch + (1 | district)),
  cbpp = list(cbpp, "trials", cbind(incidence, size - incidence) ~ period + (1 | herd)),
  VerbAgg = list(verbal, "crossed", y ~ Anger + Gender + btype + situ + (1 | id) + (1 | item)),
  epil = list(epil, "counts", y ~ lbase * trt + lage + V4 + (1 | subject)),
  grouseticks = list(ticks, "nested", TICKS ~ YEAR + cHEIGHT + (1 | INDEX) + (1 | BROOD) + (1 | LOCATION)),
  Owls = list(owls, "nbinom", sibs ~ FoodTreatment + SexParent + logBroodSize + (1 | Nest)),
  Salamanders = list(of("Salamanders", "glmmTMB"), "nbinom", count ~ mined + (1 | site)),
  Arabidopsis = list(arabidopsis, "nbinom", fruits ~ nutrient + amd + (1 | popu) + (1 | gen)),
  wine = list(wine, "clmm", rating ~ temp + contact + (1 | judge)),
  kidney = list(kidney, "cox", Surv(time, status) ~ age + female + frailty(id, distribution = "gaussian")),
  rats = list(rats, "cox", Surv(time, status) ~ rx + frailty(litter, distribution = "gaussian")),
  retinopathy = list(retina, "cox", Surv(futime, status) ~ trt * adult + frailty(id, distribution = "gaussian")),
  mcycle = list(MASS::mcycle, "gam", accel ~ s(times, k = 20, bs = "cr")),
  curves = list(curves, "gam", y ~ s(x0, bs = "cr") + s(x1, bs = "cr") + s(x2, bs = "cr") + s(x3, bs = "cr")))
tables <- Filter(Negate(is.null), tables)

fit <- function(data, kind, formula) switch(kind,
  lmer = lmer(formula, data),
  binary = glmer(formula, data, binomial, nAGQ = 25),
  trials = glmer(formula, data, binomial, nAGQ = 25),
  crossed = glmer(formula, data, binomial),
  counts = glmer(formula, data, poisson, nAGQ = 25),
  nested = glmer(formula, data, poisson, control = glmerControl(optimizer = "bobyqa")),
  nbinom = glmmTMB(formula, data, family = nbinom2),
  clmm = clmm(formula, data = data, nAGQ = 10),
  cox = coxph(formula, data),
  gam = gam(formula, data = data, method = "REML"))

answers <- function(model, kind) {
  if (kind == "gam") return(list(eta = unname(c(predict(model))), se_eta = unname(c(predict(model, se.fit = TRUE)$se.fit))))
  if (kind == "cox") {
    frail <- sqrt(model$history[[1]]$theta)
    return(list(beta = unname(coef(model)), se = unname(sqrt(diag(vcov(model)))[seq_along(coef(model))]), sds = list(frail)))
  }
  if (kind == "clmm") {
    keep <- names(model$beta)
    return(list(beta = unname(model$beta), se = unname(sqrt(diag(vcov(model)))[keep]),
                sds = lapply(VarCorr(model), function(v) unname(attr(v, "stddev")))))
  }
  if (kind == "nbinom") {
    return(list(beta = unname(fixef(model)$cond), se = unname(sqrt(diag(vcov(model)$cond))),
                sds = lapply(VarCorr(model)$cond, function(v) unname(attr(v, "stddev")))))
  }
  list(beta = unname(fixef(model)), se = unname(sqrt(diag(as.matrix(vcov(model))))),
       sds = lapply(VarCorr(model), function(v) unname(attr(v, "stddev"))))
}

arguments <- commandArgs(TRUE)
if (arguments[1] == "data") {
  for (name in names(tables)) {
    data <- as.data.frame(tables[[name]][[1]])
    used <- intersect(c(all.vars(tables[[name]][[3]]), "level"), names(data))
    data <- data[used]
    factors <- Filter(function(column) is.factor(data[[column]]), used)
    levels <- lapply(setNames(factors, factors), function(column) levels(droplevels(data[[column]])))
    for (column in factors) data[[column]] <- as.character(data[[column]])
    write(toJSON(list(columns = as.list(data), levels = levels), digits = NA, na = "null"), file.path(arguments[2], paste0(name, ".json")))
  }
} else {
  packages <- c("lme4", "nlme", "MASS", "glmmTMB", "ordinal", "survival", "mgcv", "geepack", "HSAUR3", if (present) "mlmRev")
  versions <- lapply(setNames(packages, packages), function(p) as.character(packageVersion(p)))
  found <- list(versions = versions, R = as.character(getRversion()), tables = list())
  for (name in names(tables)) {
    row <- tables[[name]]; data <- row[[1]]
    used <- system.time(model <- suppressMessages(suppressWarnings(fit(data, row[[2]], row[[3]]))))
    found$tables[[name]] <- c(list(call = row[[2]], formula = paste(deparse(row[[3]], 500), collapse = " "),
                                   seconds = used[["user.self"]] + used[["sys.self"]]), answers(model, row[[2]]))
    message(name, " ", round(used[["user.self"]], 2), " s")
  }
  write(toJSON(found, auto_unbox = TRUE, digits = 8, pretty = TRUE), file.path(arguments[2], "found.json"))
}

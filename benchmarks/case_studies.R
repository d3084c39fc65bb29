# What R finds in the data of the case studies: writes examples/case_studies/peers.json.
#
#     Rscript benchmarks/case_studies.R
#
# The root of the repository is the working directory. Needs lme4, mgcv, ordinal, survival and jsonlite.

suppressPackageStartupMessages({
  library(lme4); library(mgcv); library(ordinal); library(survival); library(jsonlite)
})
here <- "examples/case_studies/data/"
embedded <- "src/fenchel/datasets/data/"
found <- list()
keep <- function(page, call, ...) {
  found[[page]] <<- list(call = call, values = lapply(list(...), function(v) unbox(signif(as.numeric(v), 5))))
  cat(page, "done\n")
}

patterns <- read.csv(paste0(here, "ohio_wheeze.csv"))
child <- patterns[rep(seq_len(nrow(patterns)), patterns$children), ]
ohio <- data.frame(child = rep(seq_len(nrow(child)), 4), age = rep(7:10, each = nrow(child)) - 9, smoke = rep(child$smoke, 4),
                   wheeze = c(child$at7, child$at8, child$at9, child$at10))
m <- glmer(wheeze ~ age + smoke + (1 | child), ohio, binomial, nAGQ = 25)
keep("wheezing_children", "lme4::glmer(wheeze ~ age + smoke + (1|child), binomial, nAGQ = 25)", smoke = fixef(m)["smoke"],
     smoke_se = sqrt(vcov(m)["smoke", "smoke"]), age = fixef(m)["age"], sd = sqrt(VarCorr(m)$child[1]))

kidney <- read.csv(paste0(here, "kidney.csv"))
m <- coxph(Surv(time, status) ~ age + sex + frailty(id, distribution = "gaussian"), kidney)
keep("kidney_infections", 'survival::coxph(Surv(time, status) ~ age + sex + frailty(id, distribution = "gaussian"))',
     male = coef(m)["sexmale"], male_se = sqrt(vcov(m)[2, 2]), sd = sqrt(m$history[[1]]$theta))

chick <- read.csv(paste0(here, "chick_weight.csv"))
chick$diet <- factor(chick$diet); chick$chick <- factor(chick$chick); chick$logw <- log(chick$weight)
m <- gam(logw ~ diet + s(time, by = diet) + s(chick, bs = "re") + s(chick, time, bs = "re"), data = chick, method = "REML")
# the average chick of each diet on day 21: the effects of single chicks are left out
day <- data.frame(diet = factor(1:4), time = 21, chick = chick$chick[1])
p <- predict(m, day, exclude = c("s(chick)", "s(chick,time)"), se.fit = TRUE)
keep("growing_chicks", 'mgcv::gam(log(weight) ~ diet + s(time, by = diet) + s(chick, bs = "re") + s(chick, time, bs = "re"), method = "REML")',
     diet1 = p$fit[1], diet2 = p$fit[2], diet3 = p$fit[3], diet4 = p$fit[4], diet1_se = p$se.fit[1], diet3_se = p$se.fit[3])

oral <- read.csv(paste0(embedded, "germany_oral.csv"))
edges <- read.csv(paste0(embedded, "germany_adjacency.csv"))
oral$r <- factor(seq_len(544), levels = as.character(1:544))
nb <- setNames(lapply(1:544, function(i) as.character(c(edges$j[edges$i == i], edges$i[edges$j == i]))), as.character(1:544))
m <- gam(Y ~ offset(log(E)) + s(r, bs = "mrf", xt = list(nb = nb), k = 150), poisson, oral, method = "REML")
risk <- exp(predict(m, transform(oral, E = 1)))
keep("cancer_map", 'mgcv::gam(Y ~ offset(log(E)) + s(r, bs = "mrf", k = 150), poisson, method = "REML")', largest = max(risk), smallest = min(risk),
     of_1 = risk[1], of_100 = risk[100], of_300 = risk[300])

canes <- read.csv(paste0(here, "brambles.csv"))
grid <- as.data.frame(table(i = cut(canes$x, (0:30) / 30, labels = 1:30), j = cut(canes$y, (0:30) / 30, labels = 1:30)), responseName = "canes")
grid$x <- (as.integer(grid$i) - .5) * .3; grid$y <- (as.integer(grid$j) - .5) * .3
m <- gam(canes ~ offset(log(rep(.09, 900))) + s(x, y, k = 150), poisson, grid, method = "REML")
rate <- fitted(m) / .09
keep("bramble_canes", "mgcv::gam(canes ~ offset(log(area)) + s(x, y, k = 150), poisson, method = \"REML\")", largest = max(rate), median = median(rate))

cells <- read.csv(paste0(here, "satellite_thinned.csv"))
cells$x <- (cells$lon - mean(cells$lon)) * cos(mean(cells$lat) * pi / 180) * 111.32; cells$y <- (cells$lat - mean(cells$lat)) * 110.57
seen <- cells[!is.na(cells$temperature), ]; hidden <- cells[is.na(cells$temperature) & !is.na(cells$truth), ]
m <- bam(temperature ~ lon + lat + s(x, y, k = 400), data = seen)
keep("satellite_temperatures", "mgcv::bam(temperature ~ lon + lat + s(x, y, k = 400))", rmse = sqrt(mean((predict(m, hidden) - hidden$truth)^2)))

votes <- read.csv(paste0(embedded, "verbal_aggression_3cat24.csv"))
items <- setdiff(names(votes), c("gender", "anger"))
long <- data.frame(person = factor(rep(seq_len(316), 24)), item = factor(rep(items, each = 316)), anger = rep(votes$anger, 24), gender = rep(votes$gender, 24),
                   answer = factor(unlist(votes[items]), ordered = TRUE))
long$mode <- ifelse(grepl("Want", long$item), "want", "do")
m <- clmm(answer ~ anger + gender + mode + (1 | person) + (1 | item), long)
s <- summary(m)$coefficients
keep("swearing", "ordinal::clmm(answer ~ anger + gender + mode + (1|person) + (1|item))", anger = s["anger", 1], anger_se = s["anger", 2],
     want = s["modewant", 1], want_se = s["modewant", 2], sd_person = sqrt(VarCorr(m)$person[1]), sd_item = sqrt(VarCorr(m)$item[1]))

versions <- sapply(c("lme4", "mgcv", "ordinal", "survival"), function(p) as.character(packageVersion(p)))
found$versions <- lapply(as.list(c(R = paste(R.version$major, R.version$minor, sep = "."), versions)), unbox)
write(toJSON(found, pretty = TRUE, digits = NA, auto_unbox = TRUE), "examples/case_studies/peers.json")

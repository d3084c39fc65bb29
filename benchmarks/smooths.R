# Curves of mgcv for benchmarks/smooths.py, which writes the data and keeps what this prints:
#     python benchmarks/smooths.py --data DIR && Rscript benchmarks/smooths.R DIR > benchmarks/smooths.json
# DIR has cases.csv (name, data, formula, family), <data>.csv with the rows and <data>_grid.csv with where curves are compared.
suppressMessages(library(mgcv))
library(jsonlite)

folder <- commandArgs(trailingOnly = TRUE)[1]
cases <- read.csv(file.path(folder, "cases.csv"), stringsAsFactors = FALSE)
one <- function(case) {
  data <- read.csv(file.path(folder, paste0(case$data, ".csv")), stringsAsFactors = TRUE)
  grid <- read.csv(file.path(folder, paste0(case$data, "_grid.csv")), stringsAsFactors = TRUE)
  start <- proc.time()[["elapsed"]]
  fit <- gam(as.formula(case$formula), data = data, family = case$family, method = "REML")
  seconds <- proc.time()[["elapsed"]] - start
  at <- predict(fit, grid, se.fit = TRUE)  # of eta, given the smoothing parameters
  list(
    mean = as.numeric(at$fit), se = as.numeric(at$se.fit), edf = sum(fit$edf), scale = fit$sig2,
    seconds = seconds, total = sum(data$y)
  )
}
figures <- lapply(split(cases, seq_len(nrow(cases))), one)
names(figures) <- cases$name
versions <- list(R = R.version.string, mgcv = as.character(packageVersion("mgcv")))
cat(toJSON(list(versions = versions, cases = figures), auto_unbox = TRUE, digits = 8, pretty = FALSE), "\n")

# Runs one fit of a peer in R: Rscript worker.R fits.R TASK FOLDER ANSWER, as worker.py does in Python.

arguments <- commandArgs(TRUE)
data <- list()
for (path in list.files(arguments[3], "\\.csv$", full.names = TRUE)) {
  data[[sub("\\.csv$", "", basename(path))]] <- read.csv(path)
}
clock <- function() {
  now <- proc.time()
  unname(c(now["elapsed"], now["user.self"] + now["sys.self"]))
}
calls <- list()
while (length(calls) == 0 || (length(calls) == 1 && calls[[1]][2] < 40)) {
  begun <- clock()
  if (length(calls) == 0) source(arguments[1])
  found <- suppressMessages(suppressWarnings(get(arguments[2])(data)))
  calls[[length(calls) + 1]] <- clock() - begun
}
answer <- list(
  version = paste0(as.character(packageVersion(PACKAGE)), " (R ", as.character(getRversion()), ")"),
  settings = SETTINGS[[arguments[2]]], first = calls[[1]], again = calls[[length(calls)]],
  answer = lapply(found, function(value) if (is.character(value)) value else unname(as.numeric(value)))
)
flat <- function(value) if (length(value) == 1 && is.character(value)) jsonlite::unbox(value) else value
answer$answer <- lapply(answer$answer, flat)
answer$version <- jsonlite::unbox(answer$version)
answer$settings <- jsonlite::unbox(answer$settings)
writeLines(jsonlite::toJSON(answer, digits = NA), arguments[4])

"""Cause and cure of every warning and remark: words of a sentence of the source, its cause, and what to do.

``generated_pages.py`` pairs these with the sentences of the source; ``tests/test_site.py`` asks that each has its row.
"""

CAUSES: dict[str, tuple[str, str]] = {
    # -- the data ----------------------------------------------------------------------------------------------
    "holds numbers as text": (
        "The column holds text such as 1.5, so it is read as a factor.",
        "For a number use `pandas.to_numeric`. For a factor use a `pandas.Categorical`.",
    ),
    "looks like counts": (
        "You gave no family, so the family is Gaussian, but y looks like counts.",
        'Use `family="poisson"` or `"negative-binomial"`.',
    ),
    "is whole numbers and the family is gaussian": (
        "You gave no family, so the family is Gaussian, but y is whole numbers.",
        'For counts use `family="poisson"`. For a measurement, `family="gaussian"` ends the warning.',
    ),
    "and the family is gaussian by default": (
        "You gave no family, so the family is Gaussian, but y looks like something else.",
        'Name the family, such as `family="poisson"`. For a measurement, `family="gaussian"` ends the warning.',
    ),
    "is 0 or 1 in every row": ("y is a yes or a no.", 'Use `family="bernoulli"`.'),
    "says that it is meant as a number": (
        "y may hold labels or levels.",
        'Name the family. If y is a measurement, `family="gaussian"` ends the warning.',
    ),
    "where they are levels": ("y may hold ordered levels.", 'Use `family="ordinal"`.'),
    "is not a whole number; it is taken as a quasi-Poisson": (
        "The counts were scaled or averaged.",
        "Give the counts themselves, and the divisor as `exposure=`; or use another family.",
    ),
    "is not whole numbers everywhere": (
        "The counts were scaled or averaged.",
        "Give the counts themselves, and the divisor as `exposure=`; or use another family.",
    ),
    "every row is censored (event = 0): the data bound": (
        "No event was observed.",
        "Check that an event is coded as 1. If there were none, the answer depends on the prior.",
    ),
    "columns were read by a guess": (
        "The table does not say whether a column holds numbers, counts or labels.",
        "State it: `likelihood={column: word}`.",
    ),
    "and weights say how often a row was seen": (
        "Your weights are shares that sum to 1.",
        "Give weights that sum to the number of rows.",
    ),
    "score was not: ": (
        "`fit` had an exposure, weights or trials, and `score` had none.",
        "Give the same argument to `score`.",
    ),
    "they are a guess from y": (
        "The likelihood has parameters of its own, and nothing is learned.",
        "Give a likelihood with its values.",
    ),
    "no row has all covariates": ("A column is empty.", "Leave the column out, or fill it in."),
    "levels in": ("The factor has nearly a level for each row.", "Use random effects: `(1|g)`."),
    "has one level, so it has no coefficient": (
        "The factor has one level.",
        "You need not do anything. The factor has no coefficient.",
    ),
    "every row is censored (event = 0), and": ("No event was observed.", "Check that an event is coded as 1."),
    "give the shape and do not learn it": (
        "No event was observed, so the shape cannot be learned.",
        "Check that an event is coded as 1. If there were none, give the shape.",
    ),
    "it is left at its default": (
        "You gave an option to `fit` and not to `score`.",
        "Give the same option to `score`.",
    ),
    # -- groups, graphs and places -------------------------------------------------------------------------------
    "are the same groups under two names": (
        "Two columns divide the rows into the same groups.",
        "Leave one of them out.",
    ),
    "has a group for every row": (
        "The column identifies single rows.",
        "Leave it out. For counts you may keep it: it then models overdispersion.",
    ),
    "so its variance can hardly be separated from that of the noise": (
        "There is a group for each row, and noise as well.",
        "Leave the term out.",
    ),
    "has one group": ("The column has one level.", "Leave the term out."),
    "regions touch no other": (
        "The outlines of some regions do not meet those of their neighbours.",
        "Raise `tolerance=`.",
    ),
    "they are taken as counted from 0": (
        "The ids of the data and the rows of the matrix may be shifted by one.",
        "Name the regions in the order of the rows: `levels=`.",
    ),
    "have no names, and its ids are": (
        "The ids of the data and the rows of the matrix may be shifted by one.",
        "Name the regions in the order of the rows: `levels=`.",
    ),
    "only beside others, and the data do not": (
        "A region of the graph has no rows in the data.",
        "Check the spelling of its name. If it is right, list all regions: `levels=`.",
    ),
    "edges of its mesh": (
        "The mesh is coarse for the range that was learned.",
        "Give `edge=`: a twelfth of the range.",
    ),
    "learned again with": (
        "A field was learned on a first mesh, and is learned again.",
        "You need not do anything. With `nu=` and `edge=` in `matern` it is learned once.",
    ),
    "another smoothness of a field, or a finer mesh": (
        "The smoothness of a field is chosen among several, and a mesh that is too coarse is replaced by a finer one.",
        "You need not do anything. With `nu=` and `edge=` in `matern` the field is learned once.",
    ),
    "knots leave": ("There are few knots for such a short range.", "Give more `knots=`."),
    "leaves less, loss=": (
        "The inducing points approximate the process less well than asked.",
        "Raise `n_inducing=`. Or accept the error: raise `loss=`.",
    ),
    "so that all levels of": (
        "In this interaction all levels have the same slope in time.",
        "If slopes differ, add the term that the remark names.",
    ),
    "all about one level": (
        "There is a curve for each level of a factor, but the factor is not a covariate.",
        "Add the factor as a covariate.",
    ),
    "no row is related to any other": (
        "The length scales are short compared with the distances between rows.",
        "Scale the columns of X.",
    ),
    # -- the search of hyperparameters -----------------------------------------------------------------------------
    "and the evidence still rises beyond": (
        "The data do not determine this hyperparameter.",
        "State a prior, or leave the term out.",
    ),
    "more (see at_bounds_)": ("Several hyperparameters are at their bounds.", "State priors, or widen the bounds."),
    "no variance is found": (
        "The data show no differences between these groups.",
        "You need not do anything. The interval of the sd reaches 0.",
    ),
    "the noise is at its lower bound": (
        "A term can follow every row, so no noise is left.",
        "Fit without `weights=`, or leave the term out.",
    ),
    "its interval is largely that of its prior": (
        "There are few groups or few rows, so the data say little about this parameter.",
        "State a prior that you believe.",
    ),
    "rows are separated": ("A column or a group predicts y without error.", "State a prior that you believe."),
    "only the prior bounds its level": ("y is the same in every row.", "Check y."),
    "does not determine a variance": (
        "Each group has one label, or all its labels are the same.",
        "You need not do anything. The interval of the sd is wide.",
    ),
    "a slope is left in the evidence": (
        "The search for the hyperparameters ended early.",
        "Raise `n_restarts_optimizer=`, or scale y.",
    ),
    "did not converge": (
        "Prior variances are huge, or rows are nearly free of noise.",
        "Scale columns, or state narrower priors. The gap says how much the fit may still improve.",
    ),
    "the range along": (
        "This column has little influence.",
        "You need not do anything, or leave the column out of the process.",
    ),
    "the covariance under": ("Rows are equal, or the noise is tiny.", "Choose a kernel and a noise on the scale of y."),
    "which is seen through inducing points": (
        "The iterative engine does not support inducing points.",
        'Use `engine="direct"`.',
    ),
    'family="logistic" is real numbers': (
        "The family is named as logistic regression is.",
        'Use `family="bernoulli"`.',
    ),
    "the kernel allows the function less": (
        "y is in large units, such as prices, and the kernel has a variance of 1 or bounds that end at 100,000.",
        "Use `normalize_y=True`, or leave `kernel=None`.",
    ),
    "almost no noise is left": (
        "A weight of 3 stands for three rows with the same x and y, which agree without any noise.",
        "Divide weights that are precisions by their mean, or give the noise variances by `alpha=`.",
    ),
    "learn from a sample": ("The fit will take long.", "Learn the hyperparameters from a sample of the rows first."),
    'Use approximation="auto" or "inducing", whose cost': (
        "You gave `approximation=None`, and an exact process of so many rows takes long.",
        'Use `approximation="auto"` or `"inducing"`.',
    ),
    "for their dense covariance": (
        "You gave `approximation=None`, and an exact process of so many rows takes long.",
        'Use `approximation="auto"` or `"inducing"`.',
    ),
    "the corrected evidence may be off": ("Groups have few rows, and their sd is large.", 'Use `accuracy="high"`.'),
    "the bound is above loss": (
        "The error of the inducing points may be larger than you asked for.",
        "Allow more points, or a larger `loss=`.",
    ),
    "further points explain nothing more": (
        "The points are as good as double precision allows.",
        "You need not do anything.",
    ),
    "memory ended with": ("The machine has too little memory.", "Use fewer points, or a smaller table."),
    "so many points were asked for": ("The number of points has reached `n_inducing=`.", "You need not do anything."),
    "the bound is below loss": ("There are enough points.", "You need not do anything."),
    "is not used with inducing points": (
        "Learning with inducing points has a single start.",
        "Leave the argument out.",
    ),
    'evidence="corrected" with': (
        "The corrected evidence is not available with inducing points.",
        "Use `approximation=None`.",
    ),
    "rows need about": (
        "An exact Gaussian process needs a matrix of rows by rows.",
        'Use `approximation="inducing"`, or fewer rows.',
    ),
    "Newton iterations; progress=True": (
        "The fit will take long.",
        "`progress=True` shows how far it is. Fewer rows are faster.",
    ),
    "the error of a hyperparameter by the probes": (
        "The iterative engine estimates with random probes, and these differ.",
        "Raise `n_probes=`.",
    ),
    "so the iterative engine fits this model": (
        "A factorisation would take too much memory or time.",
        '`engine="direct"` or `engine="iterative"` overrides the choice.',
    ),
    # -- answers -----------------------------------------------------------------------------------------------
    "a correction may be wrong": (
        "The estimated error of the correction is too large, so the answers are those of the Gaussian.",
        "`fit.solution.importance()` tests the Gaussian by weighted draws.",
    ),
    "written with": (
        "Another version of the library wrote the file.",
        "Compare an answer with that of the other version, or fit again.",
    ),
    "no problem found by the quick checks": (
        "The checks that need no further work found nothing.",
        "Call `fit.check()` for the others, such as predicting every row from the other rows.",
    ),
    # -- fit.check() -------------------------------------------------------------------------------------------
    "The evidence found nothing in y that rows near": (
        "Rows that are near to each other in X are no more alike in y than others.",
        "Check X, use other columns, or give a kernel.",
    ),
    "Where rows are far apart or columns of different": (
        "All length scales are far below the distances between rows.",
        "Scale X with `StandardScaler`.",
    ),
    "kernel=None, which starts from": (
        "All length scales are far below the distances between rows.",
        "Do not give `kernel=`.",
    ),
    "of the right spread and of the wrong shape": (
        "The residuals are not distributed as the family says.",
        "Use a family with heavier tails, or `dispersion=`.",
    ),
    "curved along the fixed part": ("An effect is not a straight line.", "Use `s(x)`, or another link."),
    "residuals of neighbours in time are correlated": (
        "Rows that are near in time are alike.",
        "Add `ar1(t)` or `rw1(t)`.",
    ),
    "rows beyond 3 sds of their prediction": (
        "y has heavy tails, or some entries are wrong.",
        'Look at these rows. If they are right, use `family="student-t"`.',
    ),
    "rows vary about their predictions from the others": (
        "y varies more or less about its mean than the family allows.",
        "Use another family.",
    ),
    "whose theta was learned to": (
        "Memory ended before the hyperparameters were learned to the tolerance.",
        "Use fewer points.",
    ),
    "rows and latents no data sets were drawn": (
        "Tests by simulation take long with many rows, so `check()` left them out.",
        "Call `fit.residual_tests()`.",
    ),
    "times as much as the family says": (
        "Counts or shares have more or less variance than the family allows.",
        "Use the family that the message names.",
    ),
    "overdispersed, intervals": (
        "y has more variance than the family allows.",
        'Use `"negative-binomial"` for counts, `"beta-binomial"` for successes among trials.',
    ),
    "underdispersed, intervals": (
        "y has less variance than the family allows.",
        "You need not do anything. Intervals are wider than necessary.",
    ),
    "rows where the model expects": (
        "y has more zeros than the family allows.",
        "Use a zero-inflated or a hurdle family.",
    ),
    "move their own predictor": (
        "These rows differ from what the other rows predict, and they have a large influence.",
        "Check them for errors. Fit without them to see what changes.",
    ),
    "moves its own predictor": (
        "This row differs from what the other rows predict, and it has a large influence.",
        "Check it for errors. Fit without it to see what changes.",
    ),
    "from uniform; correct models": (
        "Predictions of rows from the others are biased, or their intervals are too wide or too narrow.",
        "Use another family, or add terms that are missing.",
    ),
    "predictions of rows from the others": (
        "Predictions of rows from the others are biased, or their intervals are too wide or too narrow.",
        "Use another family, or add terms that are missing.",
    ),
    "too certain: y spreads more": ("Predictive intervals are too narrow.", "Use a family with more variance."),
    "too uncertain: y spreads less": ("Predictive intervals are too wide.", "Use a family with less variance."),
    "the Gaussian falls short of the evidence": ("Groups have few binary rows.", 'Use `accuracy="high"`.'),
    "with twice its scale it would be": (
        "There are few groups, so the prior of their sd matters.",
        "State a prior that you believe. `fit.sensitivity()` shows its influence.",
    ),
}

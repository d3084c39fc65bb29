"""Problem sizes at which fenchel switches between algorithms, each with its reason.

A module reads its gate when it is called, as in ``gates.MANY_ROWS``. Results on both sides of a gate agree up to the
tolerance of a fit, unless its comment says otherwise; ``tests/test_gates.py`` fits the same problem on both sides of
each. Sizes that only limit memory or warn of a cost are not gates and stand in the module that uses them.
"""

from __future__ import annotations

# -- threads and caches --------------------------------------------------------------------------------
ONE_THREAD_ROWS = 512  # rows up to which a fit runs on one thread: with 400, two take twice as long by the clock
ONE_THREAD_LATENTS = 50_000  # sparse latents up to which BLAS has one thread: more would wait for each other
WHOLE_MATRIX = 512  # rows up to which one call on the whole matrix, which fits in cache, beats many on its triangle
LAUUM_ALONE = 800  # rows below which LAPACK's lauum is faster on one thread: 20 times on a busy machine
WRITTEN_OUT = 256  # rows up to which it is cheaper to form Vt than to multiply through the features

# -- fits ----------------------------------------------------------------------------------------------
SITE_ROWS = 256  # rows of labels up to which a search begins on plain arrays; above, certified fits are as fast
MANY_ROWS = 1_000  # rows from which theta is searched by Newton steps, and a fit steps along straight lines in tau
DUAL_JUDGES_STARTS = 10_000  # rows from which a start is also judged by its dual: the default start is five steps away
BOUNDED_GAP = 30_000  # rows from which an upper bound of the gap is computed, from its slope
NYSTROM_START = 2_000  # rows from which a fit under a dense covariance starts at the fit through an eighth of them
SAMPLED_START = 50_000  # rows from which a fit with few weights starts at the fit of a sixteenth of the rows

# -- sparse precisions ---------------------------------------------------------------------------------
CHAIN_ROWS = 2_000  # rows of a sparse matrix up to which LAPACK on a chain of dense blocks is tried
NUMPY_PAIRS = 2**19  # pairs of columns in the rows of a design up to which numpy lists them; above, a compiled loop
PART_LATENTS = 2_000  # latents from which a connected component is factorised on its own
PARTS_APART = 1e8  # multiplications of a factorisation from which components that only change scale are kept separate
DENSE_COLUMNS = 64  # full columns from which a design is split into a dense and a sparse part
SOLVED_ROWS = 64  # rows up to which variances by solves are faster than the inverse on the whole pattern
DIRECT_LATENTS = 20_000  # latents up to which the direct engine is used whatever their pattern
DIRECT_WORK = 2e13  # multiplications of a factor above which engine="auto" is the iterative one, with stated errors
DEAR_FACTOR = 2e9  # multiplications of a factor from which a start is searched without factorising

# -- corrections ---------------------------------------------------------------------------------------
COLLAPSED_FIRST = 2e6, 20  # rows times points, and other latents, up to which quadrature is cheaper than the expansion
COLLAPSED_WORK = 3e7  # rows times points up to which groups are integrated out by quadrature; to the stated errors
NEIGHBOUR_PAIRS = 2_000  # sites of a sparse prior above which only pairs of neighbours are used; to the stated error
AVERAGED_PAIRS = 10_000  # sites of few features above which pairs are averaged over draws; to the stated error
DRAWN_SITES = 3_000  # sites up to which draws are tried if the expansion does not converge

# -- hyperparameters and defaults ----------------------------------------------------------------------
EVERY_EIGENVALUE = 3_000  # nodes of a graph up to which the prior of a share uses all eigenvalues; above, quadrature
EXACT_CLASSES = 30_000  # rows times classes up to which "best" of a multinomial formula is exact; above, tilted
EXACT_SOFTMAX_WEIGHTS = 300  # coefficients up to which "best" of a linear softmax is exact; above, the tilted bound
EXACT_SOFTMAX_ROWS = 10_000  # rows times classes up to which it is exact
EXACT_SOFTMAX_CLASSES = 15  # classes up to which both are exact: every pair of them has a parameter in each row
SAMPLED_TABLE = 20_000  # rows of a factor table from which a sample of 4,000 is learned first
VECCHIA_KNOTS = 10_000  # points from which vecchia() uses this many knots; a remark says so
INDUCING_ROWS = 2_000  # rows from which approximation="auto" uses inducing points; to the stated loss of elbo
NEIGHBOUR_POINTS = 800  # points that approximation="auto" tries before neighbours, in few columns; to the stated loss

# -- accuracy="auto" of a model -------------------------------------------------------------------------
AFFORDED_FITS = 15.0  # multiples of the time of the plain fit that automatic corrections and integration may take
AFFORDED_SECONDS = 1.0  # seconds that they may take whatever the plain fit took; the summary says what was done
UNASKED_SECONDS = 20.0  # the most seconds that they may take in any case; 0 switches them off

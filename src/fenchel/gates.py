"""Sizes at which another algorithm takes over, each with its reason.

A module that switches reads its gate here when it is called: ``gates.MANY_ROWS``. The answer on either side is the
same up to the tolerance of a fit, unless the line says otherwise; ``tests/test_gates.py`` fits one problem on both
sides of each. A size that only limits memory or announces a cost is no gate, and stands where it is used.
"""

from __future__ import annotations

# -- threads and caches --------------------------------------------------------------------------------
ONE_THREAD_ROWS = 256  # rows up to which a fit runs on one thread: two gain little, and lose all beside a busy process
ONE_THREAD_LATENTS = 50_000  # sparse latents up to which BLAS has one thread: its threads would wait for each other
WHOLE_MATRIX = 512  # rows up to which one call on a whole matrix, which is in cache, beats many on its triangle
LAUUM_ALONE = 800  # rows below which LAPACK's lauum is faster on one thread, 20 times beside another busy process
WRITTEN_OUT = 256  # rows up to which products with Vt written out are cheaper than passes over the features

# -- fits ----------------------------------------------------------------------------------------------
SITE_ROWS = 256  # rows of labels up to which a search begins on plain arrays; beyond, certified fits are as fast
MANY_ROWS = 1_000  # rows from which theta is searched by Newton's steps and steps go straight in tau
DUAL_JUDGES_STARTS = 10_000  # rows from which a start is judged by its dual too: the default one is five steps away
BOUNDED_GAP = 30_000  # rows from which the gap is bounded from its slope, never below the gap
NYSTROM_START = 2_000  # rows from which a fit under a dense covariance begins at that through an eighth of them
SAMPLED_START = 50_000  # rows from which a fit with few weights begins at that of a sixteenth of them

# -- sparse precisions ---------------------------------------------------------------------------------
CHAIN_ROWS = 2_000  # rows of a sparse matrix up to which LAPACK on a chain of blocks is tried: nothing is compiled
NUMPY_PAIRS = 2**19  # pairs of columns that rows touch, up to which numpy finds them; more are worth a compiled loop
PART_LATENTS = 2_000  # latents of a component that is factorised as a part of its own
PARTS_APART = 1e8  # multiplications of a factorisation from which parts that only scale are kept apart
DENSE_COLUMNS = 64  # columns without a zero from which a design is multiplied as a dense matrix beside a sparse one
SOLVED_ROWS = 64  # rows up to which their variances by solves are faster than the inverse on the whole pattern
DIRECT_LATENTS = 20_000  # latents up to which the direct engine serves whatever their pattern
DIRECT_WORK = 2e13  # multiplications of a factor above which engine="auto" is the iterative one, with errors stated
DEAR_FACTOR = 2e9  # multiplications of a factor from which a start is looked for without it

# -- corrections ---------------------------------------------------------------------------------------
COLLAPSED_FIRST = 2e6, 20  # the same, and latents beside, where that costs less than an expansion about q
COLLAPSED_WORK = 3e7  # rows times points of a quadrature up to which groups are integrated out; to the stated errors
NEIGHBOUR_PAIRS = 2_000  # sites of a sparse prior above which pairs are those of neighbours; to the stated error
AVERAGED_PAIRS = 10_000  # sites of few features above which pairs are averages over draws; to the stated error
DRAWN_SITES = 3_000  # sites up to which draws are tried where the expansion does not hold

# -- hyperparameters and defaults ----------------------------------------------------------------------
EVERY_EIGENVALUE = 3_000  # nodes of a graph up to which the prior of a share knows all eigenvalues; a quadrature beyond
EXACT_CLASSES = 30_000  # rows times classes up to which "best" of a multinomial formula is exact; tilted beyond
EXACT_SOFTMAX_WEIGHTS = 300  # coefficients up to which "best" of a linear softmax is exact; tilted beyond: a bound
EXACT_SOFTMAX_ROWS = 10_000  # rows times classes up to which it is
SAMPLED_TABLE = 20_000  # rows of a factor table from which a sample of 4,000 is learned first
VECCHIA_KNOTS = 10_000  # points from which vecchia() puts its process on so many knots; said in a remark
INDUCING_ROWS = 2_000  # rows from which approximation="auto" takes inducing points; to the stated loss of elbo
NEIGHBOUR_POINTS = 800  # points that approximation="auto" tries before neighbours, in few columns; to the stated loss

# -- accuracy="auto" of a model -------------------------------------------------------------------------
AFFORDED_FITS = 15.0  # times as long as the plain fit: up to so much, corrections and integration are done unasked
AFFORDED_SECONDS = 1.0  # up to which they are done whatever the plain fit took; said in the first line
UNASKED_SECONDS = 20.0  # the most that they take unasked; 0: none is done

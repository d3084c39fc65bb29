"""Numbers that several solvers share, the compiled one too, each with its reason. What one alone uses it holds."""

ARMIJO = 1e-4  # share of the promised progress that a step must keep: small, so that only a step that fails is refused
SLOW = 0.3  # a step that leaves more than this share of the gap is slow; Newton's leave its square
SLOW_STEPS = 2  # after so many, Newton's system is no longer simplified: its simplification may be why
ROUNDING = 1e-10  # of |dual|: predicted decreases below this are judged by the gap
PATIENCE = 8  # steps without a new best before a search goes back to it
REACH = 4.0  # how far one step may move a coordinate that bends on the scale of e

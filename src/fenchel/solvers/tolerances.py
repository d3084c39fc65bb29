"""Numbers that several solvers share, each with its reason. What one part alone uses is a setting of that part."""

ARMIJO = 1e-4  # share of the promised progress that a step must keep: small, so that only a step that fails is refused
SLOW = 0.3  # a step that leaves more than this share of the gap is slow; Newton's leave its square
SLOW_STEPS = 2  # after so many, Newton's system is no longer simplified: its simplification may be why

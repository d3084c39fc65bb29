"""What a newcomer asks of families with several parts: labels of several kinds, hurdles with a formula, durations."""

import numpy as np
import pandas as pd
import pytest

import fenchel
from fenchel.checks import Refusal


# -- labels of several kinds --------------------------------------------------------------------------
def labels(n=240, seed=0):
    rng = np.random.default_rng(seed)
    x, g = rng.normal(size=n), rng.integers(0, 6, n)
    eta = np.column_stack([np.zeros(n), 0.5 * x + 0.6 * (g > 2), -0.5 * x])
    p = np.exp(eta) / np.exp(eta).sum(axis=1, keepdims=True)
    code = (rng.random(n)[:, None] > p.cumsum(axis=1)).sum(axis=1)
    return pd.DataFrame({"x": x, "g": [f"g{k}" for k in g], "y": np.array(["a", "b", "c"])[code]})


def test_a_coefficient_of_classes_that_is_large_is_no_error():
    data = labels()
    data["x"] = data.x + 40.0 * (data.y == "b")  # separated, so that coefficients are large under the default prior
    fit = fenchel.fit("y ~ x", data, family="multinomial")
    assert fit.coefficients.shape[0] == 4
    assert fit.remarks == []
    small = {"y": list("abcabcabca") * 5, "x": np.arange(50.0)}
    assert fenchel.fit("y ~ x", small, family="multinomial").converged


def test_effects_of_classes_go_by_the_term_and_by_its_column():
    fit = fenchel.fit("y ~ x + (1|g)", labels(), family="multinomial")
    by_column = fit.effects["g"]
    pd.testing.assert_frame_equal(by_column, fit.effects["(1|g)"])
    assert by_column.loc["b", "mean"].idxmax() in ("g3", "g4", "g5")
    new = pd.DataFrame({"x": [0.0, 0.0], "g": ["g0", "g5"]})
    link = fit.predict(new, "link")["b"]
    assert by_column.loc[("b", "g5"), "mean"] - by_column.loc[("b", "g0"), "mean"] == pytest.approx(link[1] - link[0])
    with pytest.raises(KeyError, match="no term 'h'"):
        fit.effects["h"]
    assert "y ~ x + (1|g)\n" in fit.summary()
    assert "is not a" not in repr(fit)
    better = fit.corrected()
    drawn = better.sample(new, 4000, 0)
    np.testing.assert_allclose(better.predict(new), drawn.mean(axis=0), atol=0.02)
    wider = better.coefficients["sd"] / fit.coefficients["sd"]
    assert (wider > 0.98).all()  # the Gaussian has each class as if the others were known


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("contrast", ({"x": [0.0]}, {"x": [1.0]})),
        ("average_effect", ("x",)),
        ("simulate", ()),
        ("to_arviz", ()),
        ("plot", ()),
        ("plot_check", ()),
        ("report", ("page.html",)),
    ],
)
def test_what_classes_do_not_answer_names_itself_and_what_does(name, args):
    fit = fenchel.fit("y ~ x", labels(60), family="multinomial")
    with pytest.raises(Refusal, match=rf"^{name}: this is asked of one predictor.*expected (sample|co|pred|summ)"):
        getattr(fit, name)(*args)

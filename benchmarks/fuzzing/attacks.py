"""Attacks on a file, by name: each changes the content of a saved model so that using it would run, open or unpickle
something, never end or take all memory, if the library let it.

The model is that of ``BASE``; ``canary`` is a path at which nothing may appear, ``prey`` one that must stay as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from .archives import hostile_texts

Json = Any
BASE = "y ~ np.log(x) + scale(z) + C(a) + (1|g)"


class Attack(NamedTuple):
    """What is changed, and in the file of which model."""

    change: Callable[..., None]
    kind: str = "base"


ATTACKS: dict[str, Attack] = {}


def attack(function: Callable[..., None]) -> Callable[..., None]:
    ATTACKS[function.__name__] = Attack(function)
    return function


def model(c: Json) -> Json:
    """The call of ``Model``."""
    return c["root"][2][0]


# -- formulas ------------------------------------------------------------------------------------------------
def _with_formula(name: str, text: Callable[[str], str]) -> None:
    def change(c: Json, arrays: list[bytes], canary: str, prey: str) -> None:
        model(c)[2][0] = f"y ~ x + {text(canary)} + (1|g)"

    ATTACKS[name] = Attack(change)


for k in range(len(hostile_texts(""))):
    _with_formula(f"formula_{k}", lambda canary, k=k: f"I({hostile_texts(canary)[k]})")


@attack
def response_that_runs(c: Json, arrays: list[bytes], canary: str, prey: str) -> None:
    model(c)[2][0] = f"np.log(open({canary!r}, 'w')) ~ x"


@attack
def formula_that_may_call_python(c: Json, arrays: list[bytes], canary: str, prey: str) -> None:
    model(c)[2][0] = f"y ~ x + np.save({canary!r}, x)"
    model(c)[3]["_depth"] = 1


@attack
def variables_that_are_functions(c: Json, arrays: list[bytes], canary: str, prey: str) -> None:
    model(c)[3]["env"] = ["dict", ["f", ["made", "builtins.open", [canary, "w"], {}, []]]]
    model(c)[2][0] = "y ~ x + f(x)"


# -- calls ---------------------------------------------------------------------------------------------------
@attack
def words_of_other_packages(c: Json, arrays: list[bytes], canary: str, prey: str) -> None:
    c["root"] = ["made", "os.system", [f"touch {canary}"], {}, []]


@attack
def saving_as_a_call(c: Json, arrays: list[bytes], canary: str, prey: str) -> None:
    c["root"] = ["made", "files.save", [c["root"], canary], {}, []]


@attack
def checkpoint_that_is_a_pickle(c: Json, arrays: list[bytes], canary: str, prey: str) -> None:
    c["root"][3] |= {"integrate": "grid", "checkpoint": prey}


@attack
def many_processes(c: Json, arrays: list[bytes], canary: str, prey: str) -> None:
    c["root"][3] |= {"integrate": "grid", "n_jobs": 10_000}


@attack
def a_path_in_the_place_of_a_table(c: Json, arrays: list[bytes], canary: str, prey: str) -> None:
    model(c)[2][1] = prey


@attack
def a_path_in_the_place_of_a_graph(c: Json, arrays: list[bytes], canary: str, prey: str) -> None:
    model(c)[2][0] = "y ~ icar(g)"
    model(c)[3]["graphs"] = ["dict", ["g", prey]]


# -- paths ---------------------------------------------------------------------------------------------------
def _with_term(name: str, term: Callable[[str], Json]) -> None:
    def change(c: Json, arrays: list[bytes], canary: str, prey: str) -> None:
        model(c)[2][0] = "y ~ x"
        model(c)[3]["terms"] = ["list", term(prey)]

    ATTACKS[name] = Attack(change)


def _made(word: str, *arguments: Json, **options: Json) -> Json:
    return ["made", word, list(arguments), options, []]


_POINTS = ["list", ["list", 0.0, 0.0], ["list", 1.0, 0.0], ["list", 0.0, 1.0]]
_with_term("a_path_as_the_graph_of_a_term", lambda prey: _made("terms.BYM2", "g", prey))
_with_term("a_path_as_a_structure", lambda prey: _made("terms.Generic", "g", prey))
_with_term("a_path_as_a_covariance", lambda prey: _made("terms.KnownCovariance", "g", prey))
_with_term("a_path_as_a_boundary", lambda prey: _made("terms.Matern", "x", "z", mesh=_made("gmrf.mesh", boundary=prey)))
_with_term(
    "a_path_as_a_hole", lambda prey: _made("terms.Matern", "x", "z", mesh=_made("gmrf.mesh", _POINTS, holes=prey))
)

# numbers that ask for more than the file has
_with_term(
    "a_mesh_without_end",
    lambda prey: _made("terms.Matern", "x", "z", mesh=_made("gmrf.mesh", _POINTS, edge=1e-6)),
)
_with_term("a_mesh_without_end_of_a_term", lambda prey: _made("terms.Matern", "x", "z", edge=1e-6))
_with_term(
    "a_collar_without_end",
    lambda prey: _made("terms.Matern", "x", "z", mesh=_made("gmrf.mesh", _POINTS, edge=0.5, collar=1e9)),
)
_with_term("an_order_without_end", lambda prey: _made("terms.AR", "x", 10**9))
_with_term("a_long_order", lambda prey: _made("terms.AR", "x", 30_000))
_with_term("a_period_without_end", lambda prey: _made("terms.Seasonal", "x", 10**9))
_with_term("neighbours_without_end", lambda prey: _made("terms.VecchiaProcess", "x", "z", neighbours=10**9))
_with_term("knots_without_end", lambda prey: _made("terms.VecchiaProcess", "x", "z", knots=10**9))
_with_term("a_tensor_without_end", lambda prey: _made("terms.Tensor", "x", "z", k=10**5))
_with_term("a_large_tensor", lambda prey: _made("terms.Tensor", "x", "z", k=300))
_with_term("a_smooth_without_end", lambda prey: _made("terms.Smooth", "x", k=10**6))
_with_term("levels_without_end", lambda prey: _made("terms.IID", "g", levels=["range", 0, 10**15, 1]))
_with_term(
    "a_tower_of_terms",
    lambda prey: _made("terms.Interaction", *(_made("terms.RW1", "x", levels=["range", 0, 9_999, 1]) for _ in "ab")),
)
for word, text in {
    "mesh": "matern(x, z, edge=1e-6)",
    "order": "ar(x, p=1000000000)",
    "period": "seasonal(x, period=1000000000)",
    "tensor": "te(x, z, k=100000)",
}.items():
    _with_formula(f"formula_of_{word}_without_end", lambda canary, text=text: text)


@attack
def classes_without_end(c: Json, arrays: list[bytes], canary: str, prey: str) -> None:
    model(c)[2][2:] = [_made("likelihoods.MultinomialLogit", 10**9)]


@attack
def draws_without_end(c: Json, arrays: list[bytes], canary: str, prey: str) -> None:
    model(c)[2][2:] = [_made("likelihoods.MultinomialLogit", 3, n_draws=10**12)]


def importance_without_end(c: Json, arrays: list[bytes], canary: str, prey: str) -> None:
    c["root"][2][1:] = [10**8]


def a_gap_of_nothing(c: Json, arrays: list[bytes], canary: str, prey: str) -> None:
    """Sites that are those of another row, with the certificate of the right ones."""
    numbers = dict(c["root"][2][0][4][0][1:])
    for name in ("s", "alpha", "lam"):
        place = numbers[name][1]
        arrays[place] = arrays[place][:-320] + arrays[place][-8:] * 40


ATTACKS["importance_without_end"] = Attack(importance_without_end, "draws")
ATTACKS["a_gap_of_nothing"] = Attack(a_gap_of_nothing, "draws")


@attack
def a_time_far_away(c: Json, arrays: list[bytes], canary: str, prey: str) -> None:
    """A table of times 0 and 10^12: a walk over whole numbers may not go through all of them."""
    times = [0, 10**12] * 20
    model(c)[2][:2] = ["y ~ rw1(t)", ["frame", ["list", "t", "y"], ["counter", 0, 40, 1, None], []]]
    for values in (times, list(range(40))):
        model(c)[2][1][3].append(["column", ["objects", [40], values], "int64"])


# -- sizes ---------------------------------------------------------------------------------------------------
@attack
def a_range_without_end(c: Json, arrays: list[bytes], canary: str, prey: str) -> None:
    model(c)[3]["levels"] = ["dict", ["g", ["range", 0, 10**15, 1]]]


@attack
def a_basis_without_end(c: Json, arrays: list[bytes], canary: str, prey: str) -> None:
    model(c)[2][0] = "y ~ s(x, k=1000000000)"


@attack
def one_array_many_times(c: Json, arrays: list[bytes], canary: str, prey: str) -> None:
    model(c)[3]["env"] = ["dict", *([f"v{k}", ["array", 0]] for k in range(1000))]


@attack
def no_result_of_a_search(c: Json, arrays: list[bytes], canary: str, prey: str) -> None:
    c["root"][4] = []

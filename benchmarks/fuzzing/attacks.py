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

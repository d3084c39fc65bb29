"""Durations, some of them censored, with a normal frailty a group."""

from _random_intercepts import random_intercepts


def task(quick, folder):
    return random_intercepts(
        "sim-frailty", "Survival with frailty", "60 groups of 4 Weibull durations, censored at 3, frailty of sd 0.8."
    )

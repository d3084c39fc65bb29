"""Ordered levels with a random intercept a group."""

from _random_intercepts import random_intercepts


def task(quick, folder):
    return random_intercepts("sim-ordinal", "Longitudinal ordinal", "50 groups of 5 rows of three levels, sd 1.2.")

"""Few binary rows a group and a large sd, where Laplace's approximation is off."""

from _random_intercepts import random_intercepts


def task(quick, folder):
    return random_intercepts("sim-binary", "Longitudinal binary", "100 groups of 4 binary rows, sd 2.")

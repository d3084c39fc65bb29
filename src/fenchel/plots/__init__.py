"""Pictures of a fit: bounds closing, methods racing, maps of districts, intervals, paths, grids, factors, data beside
what a model makes.

matplotlib is imported when a picture is drawn. Figures are made without pyplot: no window, no global state. Every
function draws into ``ax`` when given one, else into a figure of its own (``ax.figure``).
"""

from .effect_plots import plot_effect_curves
from .factors import plot_biplot, plot_components, plot_loadings
from .intervals import plot_caterpillar, plot_forest, plot_joint, plot_path
from .maps import plot_map
from .predictive_checks import (
    plot_bars,
    plot_calibration,
    plot_density,
    plot_pit,
    plot_reliability,
    plot_rootogram,
    plot_survival,
    plot_survival_curves,
    plot_survival_groups,
)
from .residual_plots import plot_against, plot_by_level, plot_quantiles, plot_residual_map, plot_shares, plot_variogram
from .surfaces import plot_contours, plot_decision, plot_grid, plot_heat, plot_surface
from .trace import plot_race, plot_trace

__all__ = [
    "plot_against",
    "plot_bars",
    "plot_biplot",
    "plot_by_level",
    "plot_calibration",
    "plot_caterpillar",
    "plot_components",
    "plot_contours",
    "plot_decision",
    "plot_density",
    "plot_effect_curves",
    "plot_forest",
    "plot_grid",
    "plot_heat",
    "plot_joint",
    "plot_loadings",
    "plot_map",
    "plot_path",
    "plot_pit",
    "plot_quantiles",
    "plot_race",
    "plot_reliability",
    "plot_residual_map",
    "plot_rootogram",
    "plot_shares",
    "plot_surface",
    "plot_survival",
    "plot_survival_curves",
    "plot_survival_groups",
    "plot_trace",
    "plot_variogram",
]

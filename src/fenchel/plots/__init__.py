"""Pictures of a fit: bounds closing, methods racing, maps of districts, intervals, paths, grids, factors.

matplotlib is imported when a picture is drawn. Figures are made without pyplot: no window, no global state. Every
function draws into ``ax`` when given one, else into a figure of its own (``ax.figure``).
"""

from .factors import plot_biplot, plot_components, plot_loadings
from .grids import plot_contours, plot_grid
from .intervals import plot_caterpillar, plot_forest, plot_path
from .maps import plot_map
from .surfaces import plot_surface
from .trace import plot_race, plot_trace

__all__ = [
    "plot_biplot",
    "plot_caterpillar",
    "plot_components",
    "plot_contours",
    "plot_forest",
    "plot_grid",
    "plot_loadings",
    "plot_map",
    "plot_path",
    "plot_race",
    "plot_surface",
    "plot_trace",
]

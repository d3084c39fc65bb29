"""Factor models of tables: ``model`` is the evidence and its gradient, ``learning`` maximises it, ``selection`` counts."""

from .selection import Selection, select_components

__all__ = ["Selection", "select_components"]

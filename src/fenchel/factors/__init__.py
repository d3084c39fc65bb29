"""Factor models of tables: ``model`` is the evidence, ``learning`` maximises it, ``selection`` says how many."""

from .selection import Selection, select_components

__all__ = ["Selection", "select_components"]

"""Factor models of tables: ``factor_model`` is the evidence, ``table_evidence`` learns, ``selection`` says how many."""

from .selection import Selection, select_components

__all__ = ["Selection", "select_components"]

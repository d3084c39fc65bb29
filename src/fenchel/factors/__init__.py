"""Factor models of tables: ``factor_model`` is the evidence, ``table_evidence`` learns, ``selection`` picks a model."""

from .selection import Selection, select_components

__all__ = ["Selection", "select_components"]

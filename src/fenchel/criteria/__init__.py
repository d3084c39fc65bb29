"""Criteria of a fit: how well it predicts what it has not seen."""

from .loo import LeaveOneOut, leave_one_out

__all__ = ["LeaveOneOut", "leave_one_out"]

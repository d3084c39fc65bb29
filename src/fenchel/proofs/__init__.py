"""Proofs: the evidence between two bounds, for every Gaussian q (docs/proofs.md)."""

from .holder_bound import EvidenceBounds, evidence_bounds

__all__ = ["EvidenceBounds", "evidence_bounds"]

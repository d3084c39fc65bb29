"""Proofs: the evidence between two bounds, for every Gaussian q (docs/proofs.md)."""

from .holder_bound import EvidenceBounds, evidence_bounds
from .prove import EventBounds, Proof, cheap_proof, prove

__all__ = ["EventBounds", "EvidenceBounds", "Proof", "cheap_proof", "evidence_bounds", "prove"]

"""Proofs: lower and upper bounds on the evidence, for every Gaussian q (docs/proofs.md)."""

from .holder_bound import EvidenceBounds, evidence_bounds, rounded_range
from .prove import EventBounds, Proof, cheap_proof, prove

__all__ = ["EventBounds", "EvidenceBounds", "Proof", "cheap_proof", "evidence_bounds", "prove", "rounded_range"]

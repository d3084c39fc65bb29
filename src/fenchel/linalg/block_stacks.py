"""Block-diagonal matrices as stacks (K, d, d) of small blocks, and their products with dense and sparse matrices."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from .dense import NotPositiveDefinite


def times(blocks: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The product of the block-diagonal matrix with x (K d, m)."""
    K, d, _ = blocks.shape
    if d == 1:
        return np.asarray(blocks[:, 0] * x)
    return np.matmul(blocks, x.reshape(K, d, -1)).reshape(x.shape)


def transposed(blocks: np.ndarray) -> np.ndarray:
    """The transpose of each block."""
    return blocks.transpose(0, 2, 1)


def cholesky(blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """L with L L' equal to the matrix, L^-1, and the log determinant of the matrix."""
    if blocks.shape[1] == 1:
        if not (blocks > 0.0).all():
            raise NotPositiveDefinite("a block is not positive")
        L = np.sqrt(blocks)
        return L, 1.0 / L, float(np.log(blocks).sum())
    try:
        L = np.linalg.cholesky(blocks)
    except np.linalg.LinAlgError:
        raise NotPositiveDefinite("a block is not positive definite") from None
    return L, np.linalg.inv(L), 2.0 * float(np.log(np.diagonal(L, axis1=1, axis2=2)).sum())


def rows_times(blocks: np.ndarray, indptr: np.ndarray, data: np.ndarray) -> np.ndarray:
    """The entries of (blocks) C for a CSR matrix C whose rows have the same pattern within each block."""
    d = blocks.shape[1]
    if d == 1:
        return np.asarray(np.repeat(blocks[:, 0, 0], np.diff(indptr)) * data)
    count = np.diff(indptr)
    row = np.repeat(np.arange(indptr.size - 1), count)
    width, entry, out = np.repeat(count, count), np.arange(data.size), np.zeros_like(data)
    for s in range(d):
        out += blocks[row // d, row % d, s] * data[entry + (s - row % d) * width]
    return out


def columns_times(data: np.ndarray, columns: np.ndarray, blocks: np.ndarray) -> np.ndarray:
    """The entries of C (blocks), for entries of C in whole blocks: those of a block are adjacent in a row."""
    d = blocks.shape[1]
    if d == 1:
        return np.asarray(data * blocks[columns, 0, 0])
    entry, out = np.arange(data.size) - columns % d, np.zeros_like(data)
    for s in range(d):
        out += data[entry + s] * blocks[columns // d, s, columns % d]
    return out


def column_grams(data: np.ndarray, columns: np.ndarray, K: int, d: int) -> np.ndarray:
    """The diagonal blocks (K, d, d) of C' C, from entries of C in whole blocks."""
    at = np.flatnonzero(columns % d == 0)
    block, out = columns[at] // d, np.empty((K, d, d))
    for r in range(d):
        for s in range(r + 1):
            out[:, r, s] = out[:, s, r] = np.bincount(block, data[at + r] * data[at + s], minlength=K)
    return out


def row_grams(indptr: np.ndarray, data: np.ndarray, d: int) -> np.ndarray:
    """The diagonal blocks (K, d, d) of C C' for a CSR matrix C in whole blocks."""
    K, count = (indptr.size - 1) // d, np.diff(indptr)
    first, out = np.repeat(np.arange(indptr.size - 1) % d == 0, count), np.empty((K, d, d))
    at, width = np.flatnonzero(first), np.repeat(count, count)[first]
    block = np.repeat(np.arange(indptr.size - 1), count)[first] // d
    for r in range(d):
        for s in range(r + 1):
            product = data[at + r * width] * data[at + s * width]
            out[:, r, s] = out[:, s, r] = np.bincount(block, product, minlength=K)
    return out


def block_diagonal(blocks: np.ndarray) -> sp.bsr_array:
    """The block-diagonal matrix in sparse format."""
    n, d, _ = blocks.shape
    return sp.bsr_array((blocks, np.arange(n), np.arange(n + 1)), shape=(n * d, n * d))

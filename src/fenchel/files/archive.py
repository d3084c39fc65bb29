"""One file of plain numbers and text: a zip archive, nothing in it compressed, of a json text and arrays.

Everything about sizes is checked before anything is allocated: members are as long as the file says and no longer than
it is, and an array has as many bytes as its own header asks for. Nothing in it is a pickle.
"""

from __future__ import annotations

import errno
import hashlib
import hmac
import io
import json
import math
import re
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from ..checks import Refusal, problem
from .atomic_write import check_plain, checked, replacing

CONTENT = "content.json"
KINDS = "biufcmMSU"  # of dtypes that are plain bytes
_HEADER = 4096  # bytes of an array's header at most
_STEP = 1 << 22  # bytes read at once
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


# -- writing ------------------------------------------------------------------------------------------------
def write(path: str | Path, content: dict[str, Any], arrays: list[np.ndarray]) -> None:
    """Write the archive whole: a file that was there stays until the new one is complete, and is then replaced."""
    target = checked("save", path)
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8")
    try:
        with replacing(target) as file:
            _write(file, text, arrays)
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        need = len(text) + sum(array.nbytes for array in arrays)
        kept = "the file that was there is as it was" if target.exists() else "nothing was written"
        said = f"save: No space left for {need / 2**20:.1f} MiB at {path}; {kept}"
        raise OSError(error.errno, said) from None


def _write(file: IO[bytes], text: bytes, arrays: list[np.ndarray]) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(_named(CONTENT, len(text)), text)
        for i, array in enumerate(arrays):
            header = io.BytesIO()
            npy.write_array_header_1_0(header, npy.header_data_from_array_1_0(array))
            with archive.open(_named(f"arrays/{i}.npy", len(header.getvalue()) + array.nbytes), "w") as member:
                npy.write_array(member, array, version=(1, 0), allow_pickle=False)


def _named(name: str, size: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))  # the same bytes for the same fit
    info.file_size = size
    return info


# -- reading ------------------------------------------------------------------------------------------------
def digest(path: str | Path) -> str:
    """The sha256 of a file as 64 hexadecimal digits, as ``sha256sum`` prints it.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from fenchel.files import digest
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.fenchel"
    >>> _ = path.write_bytes(b"")
    >>> digest(path)[:8]
    'e3b0c442'
    """
    check_plain("digest", Path(path))
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read(path: str | Path, sha256: str | None = None) -> tuple[dict[str, Any], list[np.ndarray]]:
    """The content and the arrays of a file, or the sentence that says what is wrong with it."""
    file = Path(path)
    size = file.stat().st_size
    check_plain("load", file)
    with open(file, "rb") as source:  # what is looked at is what is read, whatever becomes of the path meanwhile
        if sha256 is not None:
            _check_digest(file, source, sha256)
        return _read(file, source, size)


def _check_digest(path: Path, source: IO[bytes], sha256: str) -> None:
    wanted = sha256.strip().lower() if isinstance(sha256, str) else ""
    if not re.fullmatch(r"[0-9a-f]{64}", wanted):
        raise problem("load", f"sha256 is {str(sha256)[:80]!r}", "64 hexadecimal digits, as fenchel.files.digest gives")
    found = hashlib.file_digest(source, "sha256").hexdigest()  # type: ignore[arg-type]
    if not hmac.compare_digest(found, wanted):
        raise problem("load", f"{path} has the sha256 {found}", f"{wanted}: it is another file, or was changed")
    source.seek(0)


def _read(file: Path, source: IO[bytes], size: int) -> tuple[dict[str, Any], list[np.ndarray]]:
    first = source.read(2)
    source.seek(0)
    if first[:1] == b"\x80":
        got = f"{file} is a pickle, which can run any code when it is loaded"
        raise problem("load", got, "a file of save", "Load it with pickle yourself if you trust it, and save it again.")
    if first != b"PK":
        raise problem("load", f"{file} is not a file of fenchel's", "one that save wrote")
    try:
        with zipfile.ZipFile(source) as archive:
            if "schema.json" in archive.namelist():
                advice = "skops.io.load(path, trusted=fenchel.files.TRUSTED) opens it."
                raise problem("load", f"{file} is a file of skops'", "one that save wrote", advice)
            members = _checked(archive, size)
            content = json.loads(archive.read(members[0]).decode("utf-8"))
            if not isinstance(content, dict):
                raise ValueError("its content is no object")
            return content, [_array(archive, info) for info in members[1:]]
    except Refusal:
        raise
    except MemoryError:
        got = f"{file} takes {size / 2**20:.0f} MiB of memory, which are not there"
        raise problem("load", got, "a file that fits in memory") from None
    except Exception as error:  # zipfile raises what its parts raise: struct.error, zlib.error, RuntimeError, ...
        raise damaged(file, error) from None


def damaged(path: str | Path, error: BaseException | str) -> Refusal:
    """The sentence of a file that cannot be read."""
    why = str(error).strip().splitlines()
    return problem(
        "load", f"{path} is damaged ({why[0][:120] if why else type(error).__name__})", "a whole file of save"
    )


def _checked(archive: zipfile.ZipFile, size: int) -> list[zipfile.ZipInfo]:
    """The members in order; names and sizes are those that ``write`` gives."""
    infos, total = archive.infolist(), 0
    for i, info in enumerate(infos):
        expected = CONTENT if i == 0 else f"arrays/{i - 1}.npy"
        if info.filename != expected:
            raise ValueError(f"member {i} is {info.filename[:40]!r} and not {expected!r}")
        if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size or info.flag_bits & 1:
            raise ValueError(f"{expected} is compressed or encrypted")
        total += info.file_size
        if total > size:
            raise ValueError("its members are longer than the file")
    if not infos:
        raise ValueError("it is empty")
    return infos


def _array(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> np.ndarray:
    """An array whose bytes are all there, made without a pickle and read into its own memory."""
    with archive.open(info) as stream:
        version = npy.read_magic(stream)
        if version not in ((1, 0), (2, 0), (3, 0)):
            raise ValueError(f"an array of format {version}")
        reader = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, fortran, dtype = reader(stream, max_header_size=_HEADER)
        if dtype.hasobject or dtype.kind not in KINDS or dtype.fields is not None or dtype.subdtype is not None:
            raise ValueError(f"an array of {dtype}")
        if not all(isinstance(n, int) and n >= 0 for n in shape):
            raise ValueError("an array of a negative size")
        left, count = info.file_size - stream.tell(), math.prod(shape)
        if count * dtype.itemsize != left or (count and not dtype.itemsize):
            raise ValueError(f"an array of shape {shape} has {left} bytes")
        if not count:
            return np.zeros(shape, dtype, order="F" if fortran else "C")
        flat = np.empty(count, dtype)
        memory, at = flat.view(np.uint8), 0
        while at < left:
            part = stream.read(min(_STEP, left - at))
            if not part:
                raise EOFError("an array ends before its last number")
            memory[at : at + len(part)] = np.frombuffer(part, np.uint8)
            at += len(part)
        stream.read(1)  # its end, where the checksum is looked at
    return flat.reshape(shape, order="F" if fortran else "C")

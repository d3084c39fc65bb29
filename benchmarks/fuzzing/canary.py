"""A file loaded and used in a child process that may not do anything: what it did, and how it ended.

The child has an audit hook, a limit of memory and an alarm. It reports every program started, path opened for writing
(compiled loops in their own folder aside), path opened for reading outside the installation, pickle, import of another
library and code made of text. A file that an attack would leave behind is looked for by the parent.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SECONDS = 30  # of a processor that a case may take
WAIT = 150  # seconds that it may take in all: others may use the machine
ROOM = 3 << 30  # bytes beyond those of the parent
_RUNS = ("os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty", "subprocess.Popen", "pty.spawn")
_TOUCHES = ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod")
_OTHERS = ("socket.", "shutil.", "webbrowser.", "ftplib.", "urllib.", "pickle.", "ctypes.dlopen", "sys.addaudithook")
_OURS = ("fenchel", "numpy", "scipy", "pandas", "formulaic", "sklearn", "numba", "llvmlite", "interface_meta", "wrapt")
_OF_NUMBA = {("copyreg", "_reconstructor"), ("builtins", "object"), ("numpy", "dtype"), ("numpy", "ndarray")}
_ALSO = (
    "narwhals",
    "astor",
    "joblib",
    "threadpoolctl",
    "zoneinfo",
    "tzdata",
    "pytz",
    "dateutil",
    "encodings",
    "skops",
    "pymetis",
)


@dataclass(frozen=True)
class Ending:
    """How a case ended.

    Attributes
    ----------
    word : str
        "refused" (a sentence of load), "raised" (an exception when it was used), "same", "other" (other numbers: data
        at worst), "memory", "died" (a signal), "slow".
    detail : str
    events : list of str
        What the audit hook saw.
    seconds, megabytes : float
    """

    word: str
    detail: str
    events: list[str]
    seconds: float
    megabytes: float


def watched(events: list[str], written: str) -> Callable[[str, tuple[Any, ...]], None]:
    """The audit hook; ``written``: the folder in which compiled loops may be kept."""
    roots = tuple(
        map(os.path.realpath, {sys.prefix, sys.base_prefix, os.path.dirname(os.__file__), "/usr/share/zoneinfo"})
    )
    roots += tuple(os.path.realpath(p) for p in sys.path if p)

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event == "pickle.find_class" and (args[0].startswith("numba.") or tuple(args) in _OF_NUMBA):
            return  # the index of compiled loops, in their own folder
        if event in _RUNS or event in _TOUCHES or event.startswith(_OTHERS):
            if event in _TOUCHES and str(args[0]).startswith(written):
                return
            events.append(f"{event} {str(args)[:200]}")
        elif event == "open":
            path, mode, flags = args
            name = os.fsdecode(path) if isinstance(path, (str, bytes, os.PathLike)) else ""
            writes = bool(set(str(mode or "")) & set("wax+")) or bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
            if writes and not name.startswith(written) and name != os.devnull:
                events.append(f"write {name}")
            elif name and not writes and not os.path.realpath(name).startswith((*roots, written, "/proc", "/sys")):
                events.append(f"read {name}")
        elif event == "import":
            if not _known(args[0]):
                events.append(f"import {args[0]}")
        elif event == "exec":
            name = getattr(args[0], "co_filename", "")
            caller = str(sys._getframe(1).f_globals.get("__name__", ""))  # numba writes code of its own
            if not name.endswith(".py") and not name.startswith("<frozen") and not caller.startswith("numba."):
                events.append(f"exec {name} {getattr(args[0], 'co_names', ())}"[:200])

    return hook


def _known(module: str) -> bool:
    return module.partition(".")[0] in (*_OURS, *_ALSO, *sys.stdlib_module_names)


def run_case(
    path: Path, use: Callable[[Any], Any], expected: bytes, load: Callable[[Path], Any], written: str
) -> Ending:
    """Load the file and use it, in a child."""
    begun = time.perf_counter()
    receiver, sender = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(receiver)
        _child(path, use, expected, load, written, sender)
    os.close(sender)
    said = b""
    with os.fdopen(receiver, "rb") as stream:
        said = stream.read()
    _, status = os.waitpid(child, 0)
    seconds = time.perf_counter() - begun
    if os.WIFSIGNALED(status):
        slow = os.WTERMSIG(status) in (signal.SIGALRM, signal.SIGXCPU, signal.SIGKILL)
        return Ending("slow" if slow else "died", f"signal {os.WTERMSIG(status)}", [], seconds, 0.0)
    word, detail, megabytes, *events = said.decode(errors="replace").split("\0")
    return Ending(word, detail, [e for e in events if e], seconds, float(megabytes))


def _child(path: Path, use: Any, expected: bytes, load: Any, written: str, sender: int) -> None:
    """What the child does; it does not come back."""
    events: list[str] = []
    word, detail = "refused", ""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + ROOM, size + ROOM))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    signal.alarm(WAIT)
    warnings.simplefilter("ignore")
    allowed, modules = str(path), set(sys.modules)
    hook = watched(events, written)
    sys.addaudithook(lambda event, args: None if event == "open" and str(args[0]) == allowed else hook(event, args))
    try:
        made = load(path)
        word = "raised"
        answer = use(made)
        word = "same" if answer == expected else "other"
    except MemoryError:
        word = "memory"
    except BaseException as error:
        with contextlib.suppress(BaseException):
            detail = f"{type(error).__name__}: {error}"[:300].replace("\0", " ")
    seen = [*events, *(f"import {name}" for name in set(sys.modules) - modules if not _known(name))]
    used = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    os.write(sender, "\0".join([word, detail, f"{used:.1f}", *seen[:20]]).encode(errors="replace"))
    os._exit(0)

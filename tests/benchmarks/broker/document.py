"""The JSON document of a measurement: the figures, and the machine and versions that made them.

The fields of Document are the keys of the JSON, and its format has a number, so that --compare
refuses a document that it would misread.
"""

from __future__ import annotations

import dataclasses
import json
import platform
from dataclasses import dataclass
from importlib.metadata import version
from multiprocessing import cpu_count
from pathlib import Path
from typing import Final

from rmqlite import __version__
from rmqlite.kernel.words.json_tree import WrongValue, read_json, shown
from tests.benchmarks.broker.figures import Figure

FORMAT: Final = 2
"""Documents without a format are of rmqlite 0.5 and older."""
MUST_AGREE: Final = ("flush_disk_type", "scale", "cpu_model", "cpus", "python")
"""If one of these differs, the figures of two documents cannot simply be compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """memory_bytes is 0, and cpu_model the architecture, if the system does not tell."""

    version: str
    flush_disk_type: str
    scale: float
    repeat: int
    python: str
    grpcio: str
    machine: str
    system: str
    cpu_model: str
    cpus: int
    memory_bytes: int
    figures: tuple[Figure, ...]

    @property
    def title(self) -> str:
        """What was measured, and how."""
        runs = f"rates are the median of {self.repeat} runs" if self.repeat > 1 else "1 run"
        return f"rmqlite {self.version}, {self.flush_disk_type}, scale {self.scale:g}, {runs}"

    @property
    def caption(self) -> tuple[str, str]:
        """What it was measured on."""
        memory = f", {self.memory_bytes / 2**30:.1f} GiB" if self.memory_bytes else ""
        return (
            f"{self.cpu_model}, {self.cpus} CPUs{memory}",
            f"{self.system}, Python {self.python}, grpcio {self.grpcio}",
        )

    def to_json(self) -> str:
        return json.dumps({"format": FORMAT, **dataclasses.asdict(self)}, indent=2) + "\n"


def document(figures: list[Figure], *, flush: str, scale: float, repeat: int) -> Document:
    """The document of figures that were measured by this process."""
    return Document(
        version=__version__,
        flush_disk_type=flush,
        scale=scale,
        repeat=repeat,
        python=platform.python_version(),
        grpcio=version("grpcio"),
        machine=platform.machine(),
        system=f"{platform.system()} {platform.release()}",
        cpu_model=_proc_value("cpuinfo", "model name") or platform.machine(),
        cpus=cpu_count(),
        memory_bytes=int(_proc_value("meminfo", "MemTotal").removesuffix(" kB") or 0) * 1024,
        figures=tuple(figures),
    )


def document_of(text: str) -> Document:
    """Read to_json() again.  Raises ValueError, which says what is wrong with the text."""
    # Pydantic would take a seventh of the time of every command's start.
    from rmqlite.kernel.config.table_shapes import validated

    tree = read_json(text)
    found = tree.get("format") if isinstance(tree, dict) else None
    if found != FORMAT:
        raise WrongValue(("format",), str(FORMAT), "none" if found is None else shown(found))
    return validated(Document, tree)


def differences(now: Document, earlier: Document) -> list[str]:
    """What makes the two hard to compare, a sentence each."""
    pairs = [(name, getattr(now, name), getattr(earlier, name)) for name in MUST_AGREE]
    return [f"{name} was {old}, now it is {new}" for name, new, old in pairs if new != old]


def _proc_value(file: str, name: str) -> str:
    """The first value of a name in a file of /proc; empty if there is none."""
    try:
        text = Path("/proc", file).read_text()
    except OSError:
        return ""
    values = [line.partition(":")[2] for line in text.splitlines() if line.startswith(name)]
    return values[0].strip() if values else ""

"""Writes rmqlite/protocols/pb/ from proto/, or into the folder named.

Run it after an edit of proto/: python tests/generate_pb.py
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Final

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
PB = ROOT / "rmqlite" / "protocols" / "pb"
INIT: Final = '"""Generated from proto/; see tests/generate_pb.py."""\n'
ROCKETMQ: Final = "apache/rocketmq/v2"
"""The name of the folder is a part of the names of its files in protobuf's registry, where two
files of one name clash."""
ROCKETMQ_PACKAGE: Final = "rocketmq_v2"
"""The generated files stand here, because Python has no package named apache."""


def generate(target: Path) -> None:
    """Generate messages and their types; services need no code, the wire lists their calls."""
    proto = ROOT / "proto"
    native = proto / "rmqlite" / "v1"
    _generate(native, target, sorted(path.name for path in native.glob("*.proto")))
    _generate(proto / "etcd", target, ["etcd.proto"])
    rocketmq = target / ROCKETMQ_PACKAGE
    files = sorted(f"{ROCKETMQ}/{path.name}" for path in (proto / ROCKETMQ).glob("*.proto"))
    _generate(proto, rocketmq, files)
    _flatten(rocketmq)


def _generate(source: Path, target: Path, files: list[str]) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for file in files:
        arguments = [
            "protoc",
            f"-I{source}",
            # Of grpc_tools: the well-known types.
            f"-I{Path(protoc.__file__).parent / '_proto'}",
            f"--python_out={target}",
            f"--pyi_out={target}",
            file,
        ]
        if protoc.main(arguments) != 0:
            raise SystemExit(f"protoc failed on {file}")
    (target / "__init__.py").write_text(INIT)


def _flatten(package: Path) -> None:
    """Move what protoc put into folders to the package, and let it import itself from there."""
    folder = package / ROCKETMQ
    made, ours = ROCKETMQ.replace("/", "."), f"rmqlite.protocols.pb.{ROCKETMQ_PACKAGE}"
    for path in sorted(folder.iterdir()):
        text = path.read_text("utf-8").replace(f"from {made} import", f"from {ours} import")
        # The module that the classes of the messages name as theirs.
        text = text.replace(f"'{made}.{path.stem}'", f"'{ours}.{path.stem}'")
        (package / path.name).write_text(text, "utf-8")
    shutil.rmtree(package / Path(ROCKETMQ).parts[0])


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else PB)

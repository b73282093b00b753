"""Writes rmqlite/wire/pb/ from proto/, or into the folder named.

Run it after an edit of proto/: python tests/generate_pb.py
"""

from __future__ import annotations

import sys
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
PB = ROOT / "rmqlite" / "wire" / "pb"


def generate(target: Path) -> None:
    """Generate messages and their types; services need no code, wire/native.py lists them."""
    target.mkdir(parents=True, exist_ok=True)
    source = ROOT / "proto" / "rmqlite" / "v1"
    for proto in sorted(source.glob("*.proto")):
        arguments = [
            "protoc",
            f"-I{source}",
            f"--python_out={target}",
            f"--pyi_out={target}",
            proto.name,
        ]
        if protoc.main(arguments) != 0:
            raise SystemExit(f"protoc failed on {proto.name}")
    (target / "__init__.py").write_text('"""Generated from proto/; see tests/generate_pb.py."""\n')


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else PB)

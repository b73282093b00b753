"""Builds the wheels of a release: python -m tests.build_wheels DIR

Two of the same version: one with the compiled loops, for this Python and this kind of machine, and
a plain one for every other Python.  pip takes the first where it fits, and else the second.  The
loops are not built for the limited API: that has no place for what they do for each message.
"""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

ROOT = Path(__file__).resolve().parents[1]
PLAIN_TAG = "py3-none-any"


def build_wheels(folder: Path, source: Path = ROOT) -> tuple[Path, Path]:
    """The wheel that pip builds here, and the plain one."""
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--wheel-dir", str(folder), str(source)], check=True)
    (built,) = folder.glob("rmqlite-*.whl")
    return built, plain_of(built)


def plain_of(built: Path) -> Path:
    """The same wheel without the compiled library, beside it."""
    name, version, *_ = built.name.split("-")
    plain = built.with_name(f"{name}-{version}-{PLAIN_TAG}.whl")
    about = f"{name}-{version}.dist-info"
    with ZipFile(built) as old, ZipFile(plain, "w", ZIP_DEFLATED) as new:
        record = ""
        for each in old.infolist():
            data = old.read(each)
            if each.filename.endswith(".so") or each.filename == f"{about}/RECORD":
                continue
            if each.filename == f"{about}/WHEEL":
                data = (
                    b"Wheel-Version: 1.0\nGenerator: rmqlite\nRoot-Is-Purelib: true\n"
                    b"Tag: " + PLAIN_TAG.encode() + b"\n"
                )
            new.writestr(each, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record += f"{each.filename},sha256={digest},{len(data)}\n"
        new.writestr(f"{about}/RECORD", f"{record}{about}/RECORD,,\n")
    return plain


if __name__ == "__main__":
    for wheel in build_wheels(Path(sys.argv[1])):
        print(wheel)

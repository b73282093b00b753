"""README's two commands on several Pythons, before a release:

    python3 tests/every_python.py PYTHON [PYTHON ...]

Each PYTHON is a program, such as /usr/bin/python3.11.  For each, the last commit is cloned into an
empty folder, and both commands run there with nothing installed.  Name the oldest that README
allows, as Debian 12 has it (3.11.2), and the newest (uv python install 3.14, or Debian's package).
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COMMANDS = ("examples/run.py", "tests/run.py")


def main(pythons: list[str]) -> int:
    if not pythons:
        raise SystemExit(__doc__)
    rows = []
    for python in pythons:
        asked = [python, "-c", "import platform; print(platform.python_version())"]
        version = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["git", "clone", "--quiet", ROOT, folder], check=True)
            for command in COMMANDS:
                started = time.monotonic()
                code = subprocess.run([python, command], cwd=folder).returncode
                outcome = "passed" if code == 0 else f"FAILED with exit code {code}"
                took_s = time.monotonic() - started
                rows.append((code, f"{version:8} {command:16} {outcome}, {took_s:.0f} s"))
    print("\n".join(row for _, row in rows))
    return max(code for code, _ in rows)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Runs any job of `rmqlite pipeline` on a cluster with spark-submit.

    python3 -m zipfile -c rmqlite.zip rmqlite
    spark-submit --master spark://host:7077 --py-files rmqlite.zip \\
        examples/pipeline/submit.py reconcile --path /mnt/store

Run the first command beside the folder rmqlite: the zip has all that the executors get of
rmqlite.  They also need pyarrow and numpy, and for a broker grpcio, protobuf and
sortedcontainers.  The driver needs `pip install "rmqlite[spark]"`.  The paths of a store, an
export and an archive must be the same on all machines.
"""

from __future__ import annotations

import sys

from rmqlite.cli.main import app

if __name__ == "__main__":
    app(["pipeline", *sys.argv[1:]])

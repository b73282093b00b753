"""Any job of `rmqlite pipeline` on a cluster, for spark-submit.

    python3 -m zipfile -c rmqlite.zip rmqlite
    spark-submit --master spark://host:7077 --py-files rmqlite.zip \\
        examples/pipeline/submit.py reconcile --path /mnt/store

The first line, where the folder rmqlite is, makes all that the executors get of rmqlite; they
need pyarrow and numpy, and for a broker also grpcio, protobuf and sortedcontainers.  The
driver needs what `pip install "rmqlite[spark]"` brings.  A store's path, an export and an
archive must be the same place on all machines.
"""

from __future__ import annotations

import sys

from rmqlite.cli.main import app

if __name__ == "__main__":
    app(["pipeline", *sys.argv[1:]])

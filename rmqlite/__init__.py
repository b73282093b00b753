"""rmqlite: a RocketMQ 4.x compatible delay, retry and dead-letter broker in one Python process.

The map, from the ground up; each package imports only those above it in this list:

    kernel/       what moves a message: it stores, delays, delivers, hands out, retries, gives up
    features/     what is not needed for that; each folder is one feature
    protocols/    bytes and port of each protocol: our gRPC, and RocketMQ's remoting and gRPC
    store_tools/  a store without a broker: read, checked, repaired, moved
    extras.py     what `pip install "rmqlite[...]"` brings: is it there, in a version that works?
    serving.py    the kernel, every feature and every protocol as one broker
    views/        what an operator sees: figures of a group, what is wrong, lengths of time as text
    web/          the web page
    client/       the user's side: Producer, PushConsumer, PullConsumer, AdminClient, BulkScheduler,
                  RawReader, and their forms for an event loop
    celery/       a transport of kombu's: Celery with this broker
    spark/        the store and the broker as Spark sources and sinks, and the jobs over them; the
                  store as Arrow batches and Parquet files
    cli/          the command rmqlite: a module or a package for each noun
    testing/      a real broker for users' tests and ours: a pytest fixture, a clock that moves

README.md beside this file is the tour.
Importing this package imports nothing else.
"""

__version__ = "0.19.0"

"""rmqlite: a RocketMQ 4.x compatible delay, retry and dead-letter broker in one Python process.

The map, from the ground up; each package imports only those above it in this list:

    base      words that every package uses: errors, limits, message, property_string, names,
              levels, config, config_keys/, clock, retry_policy, visible, json_tree,
              table_shapes, compression, extras; the accounts, their file and the decision who
              may do what: access/; the broker's requests and answers as plain values: requests/;
              and the hottest loops in C, which an installation may lack: compiled/
    records/  a RocketMQ record: its fields, drafts of new ones, runs of many, what completes
              what, and which queues hold messages that wait
    store/    bytes on disk: commit log, consume queues, key index, recovery; and, for use
              without a broker, reader (reading/), check (checking/), repair (repairing/)
    broker/   decisions: where a message is stored, when it is due, how a waiting message is
              changed, and what a failed message becomes
    wire/     values <-> bytes of a protocol: our protobuf, and RocketMQ 4.x's remoting protocol
    views/    what an operator sees: figures of a group, what is wrong, lengths of time as text
    server/   joins broker and wire; the only package that waits.  service/ is what can be asked,
              protocols/ are gRPC, remoting and the metrics, web/ is the web page
    client/   the user's side of the wire: Producer, PushConsumer, PullConsumer, AdminClient,
              BulkScheduler, RawReader, and their forms for an event loop: asyncio/
    cli/      the command rmqlite: a module or a package for each noun
    arrow/    records as Arrow batches and Parquet files; needs no Spark
    spark/    the store and the broker as Spark sources and sinks, and the jobs over them

README.md beside this file follows a message through these rooms.
Importing this package imports nothing else.
"""

__version__ = "0.12.0"

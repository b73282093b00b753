"""rmqlite: a RocketMQ 4.x compatible delay, retry and dead-letter broker in one Python process.

The map, from the ground up; each room imports only what stands above it in this list:

    hall      errors, message, names, levels, config, clock, requests, schedule_requests,
              log_requests, bulk_requests, letter_requests, redrive_requests, retry_policy,
              retry_ladder, visible: words every room uses
    store/    bytes on disk: commit log, consume queues, key index, recovery; and without a
              broker: reader (reading/), check (checking/), repair (repairing/)
    broker/   decisions: where a message is stored, when it is due, what waits and what becomes
              of it, what a failure becomes
    wire/     values <-> protobuf
    server/   joins broker and wire; the only room that waits; web/ is its web page
    client/   the user's side of the wire: Producer, PushConsumer, PullConsumer, AdminClient,
              RawReader
    cli/      one file per noun
    spark/    the store and the broker as Spark sources and sinks, and the jobs over them

Importing this package imports nothing else.
"""

__version__ = "0.5.0"

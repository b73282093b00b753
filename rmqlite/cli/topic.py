"""rmqlite topic: list topics, show their queues, create one."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from rmqlite.cli.options import DEFAULT_ENDPOINT, AsJson, Endpoint, TopicArgument
from rmqlite.cli.output.terminal import note, print_json, print_table, time_text, to_tree
from rmqlite.names import is_system
from rmqlite.requests.topics import TopicInfo

app = typer.Typer(no_args_is_help=True, help="List, show and create topics.")

_PERM_BITS: Final = ((4, "read"), (2, "write"), (1, "inherit"))


@app.command("list")
def list_topics(
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    as_json: AsJson = False,
    with_system: Annotated[
        bool, typer.Option("--all", help="Include RocketMQ's own topics.")
    ] = False,
) -> None:
    """List the topics, retry and dead-letter topics included."""
    from rmqlite.client import AdminClient

    with AdminClient(endpoint) as admin:
        topics = [t for t in admin.list_topics() if with_system or not is_system(t.topic)]
    if as_json:
        print_json(topics)
    elif topics:
        print_table(
            ("TOPIC", "READ", "WRITE", "PERM"),
            [(t.topic, t.read_queues, t.write_queues, perm_text(t.perm)) for t in topics],
        )
    else:
        note("no topics yet")


@app.command("show")
def show_topic(
    topic: TopicArgument, endpoint: Endpoint = DEFAULT_ENDPOINT, as_json: AsJson = False
) -> None:
    """Show a topic's settings and what its queues hold."""
    from rmqlite.client import AdminClient

    with AdminClient(endpoint) as admin:
        route = admin.route(topic)
        ranges = tuple(admin.ranges(topic))
    if as_json:
        print_json({"topic": to_tree(route.topic), "ranges": to_tree(ranges)})
        return
    print_table(*_settings(route.topic))
    print_table(
        ("QUEUE", "MIN", "MAX", "MESSAGES", "NEWEST"),
        [
            (
                each.queue.queue_id,
                each.min_offset,
                each.max_offset,
                each.max_offset - each.min_offset,
                time_text(each.newest_timestamp_ms),
            )
            for each in ranges
        ],
        title="queues",
    )


@app.command("create")
def create_topic(
    topic: TopicArgument,
    queues: Annotated[
        int, typer.Option("--queues", "-q", min=1, help="Queues to read from and write to.")
    ] = 4,
    perm: Annotated[
        int, typer.Option("--perm", help="RocketMQ's bits: 4 read, 2 write, 1 inherit.")
    ] = 6,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    as_json: AsJson = False,
) -> None:
    """Create a topic; it may exist already with the same settings."""
    from rmqlite.client import AdminClient

    with AdminClient(endpoint) as admin:
        created = admin.create_topic(topic, queues=queues, perm=perm)
    if as_json:
        print_json(created)
    else:
        print_table(*_settings(created))


def perm_text(perm: int) -> str:
    """The permission bits in words: "read+write"."""
    return "+".join([word for bit, word in _PERM_BITS if perm & bit]) or "none"


def _settings(topic: TopicInfo) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
    row = (topic.topic, topic.read_queues, topic.write_queues, perm_text(topic.perm))
    return ("TOPIC", "READ", "WRITE", "PERM"), [row]

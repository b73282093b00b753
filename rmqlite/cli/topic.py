"""rmqlite topic: list topics, show their queues, create or delete one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

import typer

from rmqlite.cli.broker_view import SHORT_CALL_MS_MAX, connected
from rmqlite.cli.options import (
    DEFAULT_ENDPOINT,
    AsJson,
    ChangeOptions,
    Endpoint,
    TopicArgument,
    option,
    with_options,
)
from rmqlite.cli.output.documents import Document, prints
from rmqlite.cli.output.terminal import note, print_columns, print_json, print_lines, print_view
from rmqlite.client import TopicLoss
from rmqlite.kernel.requests.topics import QueueRange, TopicInfo
from rmqlite.kernel.words.names import is_system
from rmqlite.views.groups import loss_lines, readers_table
from rmqlite.views.numbers import time_text

app = typer.Typer(no_args_is_help=True, help="List, show, create and delete topics.")

_SHOWN: Final = Document(
    "ShownTopic", "A topic and its queues.", topic=TopicInfo, ranges=list[QueueRange]
)
_DELETED: Final = Document(
    "DeletedTopic", "What is lost with a topic, or would be.", TopicLoss, dry_run=bool
)
_PERM_BITS: Final = ((4, "read"), (2, "write"), (1, "inherit"))


@app.command("list")
@prints(lambda: list[TopicInfo])
def list_topics(
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    as_json: AsJson = False,
    with_system: Annotated[bool, option("--all", "Include RocketMQ's own topics.")] = False,
) -> None:
    """List the topics, retry and dead-letter topics included."""
    with connected(endpoint, SHORT_CALL_MS_MAX) as admin:
        topics = [t for t in admin.list_topics() if with_system or not is_system(t.topic)]
    if as_json:
        print_json(topics)
    elif topics:
        _print_settings(topics)
    else:
        note("no topics yet")


@app.command("show")
@prints(lambda: _SHOWN)
def show_topic(
    topic: TopicArgument, endpoint: Endpoint = DEFAULT_ENDPOINT, as_json: AsJson = False
) -> None:
    """Show a topic's settings and what its queues hold."""
    with connected(endpoint, SHORT_CALL_MS_MAX) as admin:
        route = admin.route(topic)
        ranges = tuple(admin.ranges(topic))
    if as_json:
        print_json(_SHOWN.tree(topic=route.topic, ranges=ranges))
        return
    _print_settings([route.topic])
    print_columns(
        {
            "QUEUE": [each.queue.queue_id for each in ranges],
            "MIN": [each.min_offset for each in ranges],
            "MAX": [each.max_offset for each in ranges],
            "MESSAGES": [each.max_offset - each.min_offset for each in ranges],
            "NEWEST": [time_text(each.newest_timestamp_ms) for each in ranges],
        },
        title="queues",
    )


@app.command("create")
@prints(lambda: TopicInfo)
def create_topic(
    topic: TopicArgument,
    queues: Annotated[int, option("--queues -q", "Queues to read from and write to.", min=1)] = 4,
    perm: Annotated[int, option("--perm", "RocketMQ's bits: 4 read, 2 write, 1 inherit.")] = 6,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    as_json: AsJson = False,
) -> None:
    """Create a topic; it may exist already with the same settings."""
    with connected(endpoint, SHORT_CALL_MS_MAX) as admin:
        created = admin.create_topic(topic, queues=queues, perm=perm)
    if as_json:
        print_json(created)
    else:
        _print_settings([created])


@app.command("delete")
@prints(lambda: _DELETED)
@with_options
def delete_topic(*, topic: TopicArgument, how: ChangeOptions) -> None:
    """Delete a topic with its messages; show before what is lost.

    Its queues are empty at once, and all groups' offsets in it are forgotten.  Messages that wait
    for it in the schedule become dead letters when they are due.
    """
    how.check_can_ask()
    with connected(how.endpoint, note=how.note) as admin:
        loss = admin.preview_topic_deletion(topic)
        if not how.as_json:
            print_lines(loss_lines(loss))
            if loss.readers:
                print_view(readers_table(loss.readers))
        if not how.dry_run:
            how.check_confirmed(f"delete topic {topic}?")
            admin.delete_topic(topic)
    if how.as_json:
        print_json(_DELETED.tree(loss, dry_run=how.dry_run))
    elif not how.dry_run:
        print_lines([f"deleted topic {topic}"])


def perm_text(perm: int) -> str:
    """The permission bits in words: "read+write"."""
    return "+".join([word for bit, word in _PERM_BITS if perm & bit]) or "none"


def _print_settings(topics: Sequence[TopicInfo]) -> None:
    print_columns(
        {
            "TOPIC": [each.topic for each in topics],
            "READ": [each.read_queues for each in topics],
            "WRITE": [each.write_queues for each in topics],
            "PERM": [perm_text(each.perm) for each in topics],
        }
    )

"""rmqlite store repair: plan and do the repair of a damaged store."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import GenericAlias
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from rmqlite.cli.options import AsJson, option
from rmqlite.cli.output.documents import Document, fields_of, many, maybe, prints
from rmqlite.cli.output.terminal import print_json, printable
from rmqlite.cli.store.check import (
    FINDING,
    FOUND,
    Levels,
    checker,
    finding_lines,
    finding_tree,
    place_text,
    reading_bar,
)
from rmqlite.cli.store.options import ConfigFile, StorePath, store_location
from rmqlite.views.numbers import counted

if TYPE_CHECKING:
    from rmqlite.store_tools.check import Finding
    from rmqlite.store_tools.repair import Action, Plan, TopicCount

_ACTION: Final = Document(
    "Action",
    "A repair of a file: what is wrong, what is done, and the messages that are lost by it.",
    **fields_of(str, "what path wrong remedy"),
    **fields_of(int, "position lostMessages"),
    **fields_of(list[str], "lost about kept"),
)
_COUNT: Final = Document("Readable", "Of a topic.", "rmqlite.store_tools.repair:TopicCount")
_REPAIR: Final = Document(
    "Repair",
    "The plan, and if it was carried out the folder with the removed bytes.",
    store=str,
    actions=many(_ACTION),
    **fields_of(many(FINDING), "findings remaining findings_afterwards"),
    **fields_of(GenericAlias(dict, (str, _COUNT)), "before after"),
    is_done=bool,
    side_folder=maybe(str),
)
LOST_SHOWN: Final = 10
"""More lines of one action are only counted; --json and the report have all lines."""
TOPICS_SHOWN: Final = 20


@prints(lambda: _REPAIR)
def repair(
    path: StorePath = None,
    config: ConfigFile = None,
    levels: Levels = "",
    yes: Annotated[bool, option("--yes", "Do the repair; without it, only show the plan.")] = False,
    as_json: AsJson = False,
) -> None:
    """Plan the repair of a store, and with --yes do it; no broker may be running on it.

    It counts the readable messages of each topic before and after.  Exit code 1 if there is
    something to do, or left to do.
    """
    from rmqlite.store_tools.repair import plan_repair
    from rmqlite.store_tools.repair import repair as carry_out

    root, given = store_location(path, config)
    checking = checker(root, given, levels)
    checking.close()
    with reading_bar("planning") as report:
        plan = plan_repair(
            root,
            config=given,
            levels=checking.levels_given,
            progress=report,
        )
    side: Path | None = None
    left: list[Finding] = []
    if yes and plan.actions:
        side = carry_out(plan)
        with reading_bar("checking again") as report:
            again = checker(root, given, levels)
            again.progress = report
            left = list(again.run())
            again.close()
    if as_json:
        print_json(_tree(plan, side, left))
    else:
        for line in _lines(plan, side, left):
            sys.stdout.write(printable(line) + "\n")
    if left or (plan.actions and not side):
        raise typer.Exit(FOUND)


def _lines(plan: Plan, side: Path | None, left: Sequence[Finding]) -> Iterator[str]:
    unmendable = [each for each in plan.remaining if not each.opening_mends]
    if not plan.actions:
        is_mended = bool(plan.findings) and not unmendable
        yield "nothing to repair" + (": opening the store mends all" if is_mended else "")
    for action in plan.actions:
        yield from _action_lines(plan.root, action)
    if unmendable and side is None:
        yield f"{counted(len(unmendable), 'thing')} that no repair can change:"
        yield from finding_lines(plan.root, unmendable)
    if not plan.actions:
        return
    yield _lost_text(plan.actions)
    yield from _count_lines(plan)
    if side is None:
        yield "nothing was changed: --yes does this, and keeps the removed bytes"
        return
    yield f"done; the removed bytes are in {side}"
    result = counted(len(left), "inconsistency") if left else "all is sound"
    yield f"the store has been opened and checked again: {result}"
    yield from finding_lines(plan.root, left)


def _action_lines(root: Path, action: Action) -> Iterator[str]:
    yield place_text(root, action.path, action.position)
    yield f"  {action.wrong}"
    yield f"  -> {action.remedy}"
    for word, names in (("lost", action.lost), ("about", action.about)):
        for name in names[:LOST_SHOWN]:
            yield f"  {word}: {name}"
        if len(names) > LOST_SHOWN:
            yield f"  {word}: {len(names) - LOST_SHOWN:,} more"


def _count_lines(plan: Plan) -> Iterator[str]:
    """The readable messages before and after: each topic that changes, and all topics."""
    from rmqlite.store_tools.repair import TopicCount, total

    none = TopicCount()
    topics = sorted(plan.before.keys() | plan.after.keys())
    pairs = [(topic, plan.before.get(topic, none), plan.after.get(topic, none)) for topic in topics]
    changed = [pair for pair in pairs if pair[1] != pair[2]]
    rows = [
        _count_row(topic or "(not known)", before, after)
        for topic, before, after in changed[:TOPICS_SHOWN]
    ]
    all_topics = (total(plan.before.values()), total(plan.after.values()))
    rows.append(_count_row("all topics", *all_topics))
    yield "what can be read, before the repair -> after it:"
    widths = [max(len(row[at]) for row in rows) for at in range(4)]
    for topic, *columns in rows:
        figures = "  ".join(
            each.rjust(wide) for each, wide in zip(columns, widths[1:], strict=True)
        )
        yield f"  {topic.ljust(widths[0])}  {figures}"
    if len(changed) > TOPICS_SHOWN:
        yield f"  {len(changed) - TOPICS_SHOWN:,} more topics change: --json has them"


def _count_row(topic: str, before: TopicCount, after: TopicCount) -> list[str]:
    figures = zip(before, after, ("messages", "pending", "bytes"), strict=True)
    return [topic, *(f"{old:,} -> {new:,} {what}" for old, new, what in figures)]


def _lost_text(actions: Sequence[Action]) -> str:
    known = sum(action.lost_messages for action in actions)
    if any(action.lost and not action.lost_messages for action in actions):
        return f"lost: {counted(known, 'message')} that can be named, and others"
    return f"lost: {counted(known, 'message')}" if known else "no message is lost"


def _tree(plan: Plan, side: Path | None, left: Sequence[Finding]) -> dict[str, Any]:
    return _REPAIR.tree(
        store=str(plan.root),
        actions=[_ACTION.tree(**action.tree(plan.root, [])) for action in plan.actions],
        findings=[finding_tree(each) for each in plan.findings],
        remaining=[finding_tree(each) for each in plan.remaining],
        before=_counts(plan.before),
        after=_counts(plan.after),
        is_done=side is not None,
        side_folder=str(side) if side else None,
        findings_afterwards=[finding_tree(each) for each in left],
    )


def _counts(counts: Mapping[str, TopicCount]) -> dict[str, dict[str, Any]]:
    return {topic: _COUNT.tree(count._asdict()) for topic, count in counts.items()}

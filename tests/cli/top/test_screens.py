"""The screens: what a person sees and what the keys do, at the size of an old terminal."""

from __future__ import annotations

import threading

from rmqlite.cli.top.group_screen import GroupScreen
from rmqlite.features.changes.requests import ChangedId, ChangeOutcome
from rmqlite.features.dead_letters.requests import DeadLetterPage, DeadLettersQuery, HistoryQuery
from rmqlite.features.redrive.requests import (
    JobState,
    ReadersOfTopic,
    RedriveJob,
    RedrivePreview,
    RedriveSpec,
)
from rmqlite.kernel.requests.broker import ScheduleAction
from rmqlite.kernel.words.clock import local_text
from rmqlite.kernel.words.errors import NotSupported
from tests.cli.top.screens import CALL_MS_MAX, Shown, drive
from tests.support.broker_answers import HOSTILE, NOW_MS, dead, letter, status
from tests.support.fake_broker import FakeBroker


def test_the_overview_at_80_by_24(broker: FakeBroker) -> None:
    """All that says whether a broker is well, without a key pressed."""

    async def look(shown: Shown) -> None:
        broker.answers["GetBrokerStatus"] = lambda _: status(2_000, sent=1_500, delivered=901)
        await shown.pass_seconds(2)
        lines = shown.lines
        assert [len(lines), max(map(len, lines))] == [24, 80]
        assert lines[0].startswith(
            "rmqlite top  broker-a 0.6.0  up 1m 42s  127.0.0.1:10911  disk 42%"
        )
        assert lines[1] == "▲ 100,000 open dead letters in workers"
        assert " ".join(lines[2].split()) == "SENT/S 250 DELIVERED/S 0.5 RETRIED/S 0 DEAD/S 0"
        assert lines[5].startswith("─ levels: 99,100 pending, 1 unused ─")
        assert lines[7].split() == ["1", "1s", "99,100", "in", "58.0s", "900", "1", "3", "9"]
        assert lines[8].startswith("─ groups: 2, by worst ─")
        assert [line.split()[:8] for line in lines[9:12]] == [
            ["GROUP", "LAG", "DUE", "MEMBERS", "RETRIES", "DEAD", "NEW", "DEAD"],
            ["workers", "15", "3", "1", "5", "100,000", "+0", "timeout"],
            ["mails", "0", "0", "1", "0", "0", "+0", "-"],
        ]
        assert lines[-1].startswith("enter group  / filter  s sort")

    drive(broker, look)


def test_a_redrive_is_seen_while_it_runs(broker: FakeBroker) -> None:
    """And takes no room when there is none."""
    job = RedriveJob("job-1", RedriveSpec("workers"), JobState.RUNNING, 200, 100, 98, 1, 1)

    async def look(shown: Shown) -> None:
        assert "redrives" not in shown.text
        broker.answers["ListRedriveJobs"] = lambda _: (job,)
        await shown.pass_seconds(6)
        assert "─ redrives: 1 running ─" in shown.text
        assert "workers  running  ██████░░░░░░ 50.0%" in shown.text

    drive(broker, look)


def test_one_drills_down_to_a_message_and_back(broker: FakeBroker) -> None:
    """Enter, enter, enter: group, message, one event's record; escape leads back."""

    async def look(shown: Shown) -> None:
        await shown.press("enter")
        assert shown.lines[2].startswith(
            "workers  lag 15  due 3  1 member  retries 5  dead 100,000"
        )
        assert "─ dead letters: 100 so far, the newest first [1-16 of 100] ─" in shown.text
        await shown.press("j", "enter")
        assert broker.asked["GetLife"] == [HistoryQuery("ID1")]
        assert "─ history: 3 events" in shown.text
        assert "dead in workers after 17 attempts" in shown.text
        assert "It is dead in workers" in shown.text
        await shown.press("enter")
        assert broker.asked["GetMessage"][-1] == "OFFSETSENT"
        assert "asked for  OFFSETSENT" in shown.text
        await shown.press("escape")
        assert "─ dead letters" in shown.text
        await shown.press("escape")
        assert "─ groups" in shown.text

    drive(broker, look)


def test_a_group_opens_with_what_is_wrong_with_it(broker: FakeBroker) -> None:
    """Dead letters, else retries, else how far it is."""

    async def look(shown: Shown) -> None:
        await shown.press("j", "enter")
        screen = shown.app.screen
        assert isinstance(screen, GroupScreen)
        assert screen.group == "mails"
        assert "[3 queues]" in shown.text
        await shown.press("escape")
        broker.answers["ListDeadLetterGroups"] = lambda _: ()
        await shown.pass_seconds(6)
        await shown.press("g", "enter")
        assert "[2 retries]" in shown.text

    drive(broker, look)


def test_a_body_is_shown_as_json_as_text_and_in_hex(broker: FakeBroker) -> None:
    """Whoever looks for a broken byte needs the bytes."""

    async def look(shown: Shown) -> None:
        await shown.press("enter", "enter", "tab", "G")
        assert '  "text": "\\u001b[31m"' in shown.lines
        await shown.press("b", "G")
        assert '{"id": 7, "text": "\\u001b[31m"}' in shown.lines
        await shown.press("b", "G")
        assert '|{"id": 7, "text"|' in shown.text

    drive(broker, look)


def test_nothing_hostile_is_interpreted(broker: FakeBroker) -> None:
    """Neither by a terminal nor as markup, on any screen."""
    broker.answers["ListDeadLetterGroups"] = lambda _: (dead("workers", 3), dead(HOSTILE, 2))

    async def look(shown: Shown) -> None:
        for keys in ((), ("enter",), ("enter",), ("question_mark",)):
            await shown.press(*keys)
            assert shown.text.replace("\n", "").isprintable()
        await shown.press("escape", "escape", "slash", *"[red]", "enter")
        assert "'[red]'" in shown.text

    drive(broker, look, size=(160, 50))


def test_of_a_hundred_thousand_dead_letters_a_page_is_loaded(broker: FakeBroker) -> None:
    """The next one when the cursor comes near its end."""

    async def look(shown: Shown) -> None:
        await shown.press("enter")
        assert len(broker.asked["ListDeadLetters"]) == 1
        await shown.press("end")
        assert "dead letters: 200 so far" in shown.text
        assert len(broker.asked["ListDeadLetters"]) == 2
        await shown.press("end")
        assert "dead letters: 300 so far" in shown.text

    drive(broker, look)


def test_a_filter_is_the_brokers_to_apply(broker: FakeBroker) -> None:
    """Of letters that are not loaded, too."""

    async def look(shown: Shown) -> None:
        await shown.press("enter", "slash", *"topic=orders red", "enter")
        asked = broker.asked["ListDeadLetters"][-1].filter
        assert (asked.topic, asked.reason) == ("orders", "red")
        assert "dead letters: 1, filtered by 'topic=orders red'" in shown.text
        await shown.press("slash", "ctrl+u", *"nowhere", "enter")
        assert "─ dead letters: 0, filtered by 'nowhere'" in shown.text
        assert shown.lines[6] == "none"

    drive(broker, look)


def test_groups_are_sorted_and_filtered(broker: FakeBroker) -> None:
    """By a part of the name; the cursor is where one was."""

    async def look(shown: Shown) -> None:
        await shown.press("s", "s", "s", "s", "s")
        assert "─ groups: 2, by name ─" in shown.text
        assert shown.lines[10].startswith("mails")
        await shown.press("slash", *"WORK", "enter")
        assert "─ groups: 1 of 2, with 'WORK', by name ─" in shown.text
        await shown.press("enter")
        assert shown.app.screen_stack[-1].group == "workers"  # type: ignore[attr-defined]

    drive(broker, look)


def test_a_broker_that_goes_away_is_shown_so_and_found_again(broker: FakeBroker) -> None:
    """What was known stays, with its age; nothing has to be pressed."""

    async def look(shown: Shown) -> None:
        broker.stop()
        await shown.pass_seconds(2)
        await shown.pass_seconds(10)
        assert shown.lines[1].startswith("✖ no answer for 12.0s (")
        assert shown.lines[0].endswith(local_text(NOW_MS)[11:19])
        assert "workers" in shown.text
        await shown.press("enter")
        assert "Traceback" not in shown.text
        broker.start()
        for _ in range(50):
            await shown.pass_seconds(2)
            if shown.app.picture.unreachable is None:
                break
        await shown.pass_seconds(6)
        assert "no answer" not in shown.text
        assert "dead letters: 100 so far" in shown.text

    drive(broker, look)


def test_a_list_that_is_asked_for_is_not_asked_for_again(broker: FakeBroker) -> None:
    """A broker that is slow already must not have a call for every blink of the screen."""
    let_go = threading.Event()

    def slow(query: DeadLettersQuery) -> DeadLetterPage:
        assert let_go.wait(CALL_MS_MAX / 1000)
        return DeadLetterPage((letter(1),), looked_at=query.max_letters)

    async def look(shown: Shown) -> None:
        await shown.press("enter")
        asked = len(broker.asked["ListDeadLetters"])
        broker.answers["ListDeadLetters"] = slow
        shown.seconds.now_s += 6
        for _ in range(20):
            shown.app.tick()
        await shown.press_only("escape")
        let_go.set()
        await shown.settle()
        assert len(broker.asked["ListDeadLetters"]) == asked + 1

    drive(broker, look)


def test_while_it_is_paused_nothing_is_asked(broker: FakeBroker) -> None:
    """What is shown is as old as it says."""

    async def look(shown: Shown) -> None:
        await shown.press("p")
        asked = len(broker.asked["GetBrokerStatus"])
        await shown.pass_seconds(60)
        assert len(broker.asked["GetBrokerStatus"]) == asked
        assert shown.lines[1].endswith("PAUSED, 1m 0s old")
        await shown.press("r")
        assert len(broker.asked["GetBrokerStatus"]) == asked + 1
        assert shown.lines[1].endswith("PAUSED, 0ms old")

    drive(broker, look)


def test_the_interval_is_changed_in_steps(broker: FakeBroker) -> None:
    """A slow line, or a moment that counts."""

    async def look(shown: Shown) -> None:
        await shown.press("plus")
        assert shown.lines[-1] == "every 5 s"
        await shown.press("minus", "minus", "minus")
        assert shown.lines[-1] == "every 1 s"
        await shown.pass_seconds(9)
        assert "+- 1 s" in shown.lines[-1]

    drive(broker, look)


def test_a_dead_letter_is_redriven_once_that_is_confirmed(broker: FakeBroker) -> None:
    """Anything but y is a no."""

    async def look(shown: Shown) -> None:
        await shown.press("enter", "R")
        assert "Send message ID0 (order-0) again to group workers only?" in shown.text
        await shown.press("enter")
        assert not broker.asked["StartRedrive"]
        await shown.press("R", "y")
        spec = broker.asked["StartRedrive"][0].spec
        assert (spec.group, spec.again, spec.to_group) == ("workers", False, True)
        assert spec.filter.ids == ("7F00000100002A9F0000000000000000",)
        assert shown.lines[-1] == "redrive job job-1 started"

    drive(broker, look)


def test_a_dead_letter_is_published_to_its_topic_once_its_readers_are_named(
    broker: FakeBroker,
) -> None:
    """Every group of the topic gets it: that must be known before the y."""
    topics = (ReadersOfTopic("orders", 1, ("mails", "workers"), 2),)
    broker.answers["PreviewRedrive"] = lambda _: RedrivePreview(1, 1, 1, 0, 0, topics)

    async def look(shown: Shown) -> None:
        await shown.press("enter", "P")
        assert "Publish message ID0 (order-0) to topic orders, for" in shown.text
        assert "It is read by groups mails, workers, 2 more." in shown.text
        await shown.press("y")
        spec = broker.asked["StartRedrive"][0].spec
        assert (spec.to_topic, spec.to_group) == ("orders", False)

    drive(broker, look)


def test_retries_are_listed_with_attempt_and_due_time(broker: FakeBroker) -> None:
    """What comes next, and how often it has failed of how often it may."""

    async def look(shown: Shown) -> None:
        await shown.press("enter", "2")
        assert shown.lines[4].startswith("─ retries: 2, in due order ─")
        assert shown.lines[6].split()[:5] == ["due", "3", "of", "17", "orders"]
        assert shown.lines[7].split()[:6] == ["in", "30.0s", "3", "of", "17", "orders"]

    drive(broker, look)


def test_a_retry_that_waits_is_given_now_or_cancelled(broker: FakeBroker) -> None:
    """One that is due already has nothing to wait for."""
    broker.answers["ChangeByIds"] = lambda change: tuple(
        [ChangedId(each, ChangeOutcome.DONE, 1) for each in change.message_ids]
    )

    async def look(shown: Shown) -> None:
        await shown.press("enter", "2", "n")
        assert shown.lines[-1] == "it is due already, the group has it next"
        await shown.press("j", "n")
        assert "Give message ID3 (order-3) to workers now?" in shown.text
        await shown.press("y")
        assert shown.lines[-1] == "ID3: given now"
        await shown.press("c", "y")
        assert shown.lines[-1] == "ID3: cancelled"
        changes = [(each.action, each.topic) for each in broker.asked["ChangeByIds"]]
        assert changes == [
            (ScheduleAction.FIRE, "%RETRY%workers"),
            (ScheduleAction.CANCEL, "%RETRY%workers"),
        ]

    drive(broker, look)


def test_what_is_being_written_is_seen(broker: FakeBroker) -> None:
    """The line of a filter stands above the keys; escape leaves all as it was."""

    async def look(shown: Shown) -> None:
        await shown.press("slash", *"work")
        assert shown.lines[-2].startswith("work")
        await shown.press("escape")
        assert "─ groups: 2, by worst ─" in shown.text

    drive(broker, look)


def test_it_works_at_any_size(broker: FakeBroker) -> None:
    """A window is drawn at its corner."""

    async def look(shown: Shown) -> None:
        for width, height in ((160, 50), (20, 5), (1, 1), (80, 24)):
            for keys in (("enter",), ("enter",), ("escape",), ("escape",)):
                await shown.resize(width, height)
                await shown.press(*keys)
                assert max(map(len, shown.lines)) <= width
        assert "─ groups" in shown.text

    drive(broker, look)


def test_what_is_not_shown_is_not_asked(broker: FakeBroker) -> None:
    """Inside a group only what is about it, inside a message only whether the broker is there."""

    async def look(shown: Shown) -> None:
        async def asked_in_ten_seconds() -> set[str]:
            before = {name: len(asked) for name, asked in broker.asked.items()}
            await shown.pass_seconds(10)
            after = {name: len(asked) for name, asked in broker.asked.items()}
            return {name for name, count in after.items() if count > before.get(name, 0)}

        of_group = {"GetBrokerStatus", "DescribeGroup", "CountPending", "ListDeadLetterGroups"}
        await shown.press("enter", "3")
        assert await asked_in_ten_seconds() == of_group
        assert broker.asked["DescribeGroup"][-1] == "workers"
        await shown.press("1")
        assert await asked_in_ten_seconds() == of_group | {"ListDeadLetters"}
        await shown.press("enter")
        assert await asked_in_ten_seconds() == {"GetBrokerStatus"}

    drive(broker, look)


def test_an_older_broker_is_shown_as_far_as_it_answers(broker: FakeBroker) -> None:
    """Everything else is as useful as before."""
    for name in ("ListDeadLetterGroups", "ListRedriveJobs", "ListDeadLetters"):
        broker.answers[name] = _not_known

    async def look(shown: Shown) -> None:
        assert (
            "▲ dead letters not known, redrive jobs not known: nobody knows that here" in shown.text
        )
        await shown.press("enter", "1")
        assert "not known: nobody knows that here" in shown.text

    drive(broker, look)


def _not_known(_: object) -> object:
    raise NotSupported("nobody knows that here")

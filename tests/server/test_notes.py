"""Why somebody makes a change: with the call, in the audit log, and in the job."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rmqlite.features.accounts.accounts import Role
from rmqlite.features.dead_letters.requests import PURGE_DEAD_LETTERS, PurgeRequest
from rmqlite.features.operating.requests import DELETE_TOPIC
from rmqlite.features.redrive.redrive import Redrive
from rmqlite.features.redrive.requests import (
    CHANGE_REDRIVE_JOB,
    NOTES_MAX,
    START_REDRIVE,
    JobAction,
    JobChange,
    JobState,
    RedriveJob,
    RedriveRequest,
    RedriveSpec,
)
from rmqlite.kernel.service.access import CALLER, NOTE, Caller, Note
from rmqlite.kernel.words.errors import InvalidValue, RmqliteError
from rmqlite.kernel.words.limits import NOTE_CHARS_MAX
from rmqlite.protocols.grpc.calls import everybody
from rmqlite.protocols.grpc.in_flight import InFlight
from rmqlite.protocols.native.bytes import rpcs
from rmqlite.protocols.native.bytes.notes import NOTE as METADATA
from rmqlite.protocols.native.bytes.rpcs import rpc_of
from rmqlite.protocols.native.table import handlers_of, methods_of
from tests.support.accounts import account, accounts
from tests.support.brokers import BrokerUnderTest
from tests.support.calls import ask
from tests.support.redrives import GROUP, bury_many
from tests.support.service_calls import WRITING, filled
from tests.support.service_calls import ask as ask_service
from tests.support.services import Served, served

ADMIN = account("admin-key", role=Role.ADMIN)
WHY = "INC-12: the ledger was away, für Ämter"
Lines = Callable[[], list[str]]


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Lines:
    """The lines of the audit log."""
    caplog.set_level(logging.INFO, "rmqlite.audit")
    return lambda: [each.getMessage() for each in caplog.records if each.name == "rmqlite.audit"]


class Native:
    """A client of rmqlite.v1 whose calls may have a note."""

    def __init__(self, server: Served) -> None:
        config = server.config
        methods = methods_of(server.service)
        self._handlers = handlers_of(methods, InFlight(1 << 30, 1 << 20), config, everybody)

    async def __call__(self, rpc: Any, request: Any, note: bytes = b"") -> Any:
        sent: Any = ((METADATA, note),) if note else ()
        context = await ask(
            self._handlers, rpc.path, rpc_of(rpc).encode_request(request), sent=sent
        )
        if context.code.name != "OK":
            raise context.error
        return rpc_of(rpc).decode_response(context.answers[0])


def test_a_change_with_a_note_has_a_line_also_without_accounts(
    under_test: BrokerUnderTest, lines: Lines
) -> None:
    """A dry run has none, and a change without a note only has one if there are accounts."""
    bury_many(under_test, 3)

    async def scenario(server: Served, _: object) -> None:
        native = Native(server)
        wanted = PurgeRequest(GROUP)
        dry_run = replace(wanted, dry_run=True)
        await native(PURGE_DEAD_LETTERS, dry_run, WHY.encode())
        await native(PURGE_DEAD_LETTERS, wanted, WHY.encode())
        await native(PURGE_DEAD_LETTERS, wanted)
        await native(rpcs.LIST_TOPICS, None, WHY.encode())
        server.access.accounts = accounts(ADMIN)
        CALLER.set(Caller(ADMIN, "10.0.0.7:7", "grpc"))
        await native(PURGE_DEAD_LETTERS, dry_run, WHY.encode())
        await native(PURGE_DEAD_LETTERS, wanted, WHY.encode())
        await native(PURGE_DEAD_LETTERS, wanted)

    served(under_test, scenario)
    changed = f"call='DeadLetterCalls.purge' target='{GROUP}' outcome=ok"
    of_admin = f"changes face=grpc account='admin-key' client=10.0.0.7:7 {changed}"
    assert lines() == [
        f"changes face=grpc account='' client=10.0.0.1:1234 {changed} note={WHY!r}",
        f"{of_admin} note={WHY!r}",
        of_admin,
    ]


def test_a_note_makes_nobody_an_admin(under_test: BrokerUnderTest, lines: Lines) -> None:
    """It has an address, but that is for the log only."""

    async def scenario(server: Served, _: object) -> None:
        server.access.accounts = accounts(ADMIN)
        with pytest.raises(RmqliteError) as refused:
            await Native(server)(DELETE_TOPIC, "orders", WHY.encode())
        assert refused.value.code == "access-denied"

    served(under_test, scenario)
    assert [line.split()[0] for line in lines()] == ["refused"]


@pytest.mark.parametrize(
    "note",
    [b"two\nlines", b"\x1b[2J", b"x" * (NOTE_CHARS_MAX + 1), b"\xff", "\u202e".encode()],
)
def test_a_note_that_is_no_line_is_refused(under_test: BrokerUnderTest, note: bytes) -> None:
    """Before the change: a log is read line by line."""
    bury_many(under_test, 1)

    async def scenario(server: Served, _: object) -> None:
        native = Native(server)
        with pytest.raises(InvalidValue, match="note"):
            await native(PURGE_DEAD_LETTERS, PurgeRequest(GROUP), note)
        longest = "ü" * NOTE_CHARS_MAX
        purged = await native(PURGE_DEAD_LETTERS, PurgeRequest(GROUP), longest.encode())
        assert purged.letters == 1

    served(under_test, scenario)


def test_every_change_of_an_operator_takes_a_note(tmp_path: Path, lines: Lines) -> None:
    """What belongs to producers and consumers has none."""

    async def scenario(server: Served, _: object) -> None:
        NOTE.set(Note(WHY))
        for method, arguments in WRITING:
            with suppress(RmqliteError):
                await ask_service(server.service, method, arguments)

    with filled(tmp_path) as under_test:
        served(under_test, scenario)
    assert all(f"note={WHY!r}" in line for line in lines())
    calls = [line.partition("call='")[2].partition("'")[0] for line in lines()]
    assert {"DeletionCalls.delete", "GroupCalls.delete", "DeadLetterCalls.purge"} <= set(calls)
    assert {"RedriveCalls.start", "RedriveCalls.change", "RedriveCalls.import_letters"} <= {*calls}
    assert calls.count("ChangeCalls.change_by_ids") == 3
    assert not any(call.startswith("MessageCalls") for call in calls)


def test_a_job_keeps_its_notes(under_test: BrokerUnderTest) -> None:
    """From the start on, with those of changes, the newest ones, and after a restart."""
    bury_many(under_test, 3)

    async def scenario(server: Served, _: object) -> None:
        native = Native(server)
        request = RedriveRequest(RedriveSpec(GROUP), "job")
        started = await native(START_REDRIVE, request, b"started")
        again = await native(START_REDRIVE, request, b"again")
        assert started.operator_notes == again.operator_notes == ("started",)
        for rate in range(NOTES_MAX):
            change = JobChange("job", JobAction.SET_RATE, rate + 1)
            job = await native(CHANGE_REDRIVE_JOB, change, b"rate %d" % (rate + 1))
        cancel = JobChange("job", JobAction.CANCEL)
        job = await native(CHANGE_REDRIVE_JOB, cancel)
        assert job.operator_notes == tuple([f"rate {rate + 1}" for rate in range(NOTES_MAX)])

    served(under_test, scenario)

    def kept() -> RedriveJob:
        return under_test.broker[Redrive].jobs.get("job").job

    before = kept()
    assert before.state is JobState.CANCELLED
    under_test.restart()
    assert kept() == before
    under_test.persist()
    under_test.restart()
    assert kept() == before

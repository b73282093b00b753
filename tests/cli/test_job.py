"""rmqlite job: what is shown of bulk jobs."""

from __future__ import annotations

import json

import pytest

from rmqlite.bulk_requests import BulkJob, Refusal
from rmqlite.clock import local_text
from rmqlite.errors import JobUnknown
from tests.cli.conftest import Run
from tests.client.fake_broker import FakeBroker

FIRST_MS, LAST_MS = 1_700_000_000_000, 1_700_000_060_000
REFUSED = Refusal("row\x1b-7", "delay-unknown", "delay='11m' is not allowed", "delay", "11m", "x")
JOB = BulkJob("import-7", 1_000_000, 3, 2, 2_001, FIRST_MS, LAST_MS, (REFUSED,))


@pytest.fixture
def broker(broker: FakeBroker) -> FakeBroker:
    """A broker with two jobs."""

    def get(job_id: str) -> BulkJob:
        if job_id != "import-7":
            raise JobUnknown(job_id)
        return JOB

    listed = (BulkJob("import-7", 1_000_000, 3, 2, 2_001, FIRST_MS, LAST_MS), BulkJob("b"))
    broker.answers |= {"GetBulkJob": get, "ListBulkJobs": lambda _: listed}
    return broker


@pytest.mark.usefixtures("broker")
def test_jobs_are_listed_with_their_sums(run: Run) -> None:
    """What an operator asks after a night's import."""
    lines = run("job", "list").stdout.splitlines()
    assert lines[0].split() == [
        "JOB",
        "ACCEPTED",
        "DUPLICATES",
        "REFUSED",
        "CALLS",
        "FIRST",
        "LAST",
    ]
    assert lines[1].split()[:5] == ["import-7", "1,000,000", "3", "2", "2,001"]
    assert local_text(LAST_MS) in lines[1]
    assert lines[2].split() == ["b", "0", "0", "0", "0", "-", "-"]


@pytest.mark.usefixtures("broker")
def test_a_job_shows_why_messages_were_refused(run: Run) -> None:
    """The id finds the row, the sentence says what to mend; nothing reaches the terminal raw."""
    result = run("job", "show", "import-7")
    assert "1,000,000" in result.stdout
    assert "delay='11m' is not allowed" in result.stdout
    assert "\x1b" not in result.stdout
    assert "the first 1 of 2 that were refused" in result.stderr


@pytest.mark.usefixtures("broker")
def test_programs_get_json(run: Run) -> None:
    """Every field, called as in Python."""
    (first, _) = json.loads(run("job", "list", "--json").stdout)
    assert (first["job_id"], first["accepted"], first["samples"]) == ("import-7", 1_000_000, [])
    shown = json.loads(run("job", "show", "import-7", "--json").stdout)
    assert shown["samples"][0]["message_id"] == "row\x1b-7"


@pytest.mark.usefixtures("broker")
def test_a_job_that_is_not_known_is_refused(run: Run) -> None:
    """The same exit code as every other refusal."""
    result = run("job", "show", "other")
    assert result.exit_code == 1
    assert "no job named 'other'" in result.stderr


def test_no_job_is_said_beside_the_output(broker: FakeBroker, run: Run) -> None:
    """The output is for what was asked."""
    broker.answers["ListBulkJobs"] = lambda _: ()
    result = run("job", "list")
    assert (result.stdout, result.exit_code) == ("", 0)
    assert "no jobs yet" in result.stderr

"""An object store on its bad days: the broker serves on, says what is the matter, and catches up.

S3's protocol behind a proxy that fails: with --long that of a real server.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from shutil import copytree

import pytest
from obstore import delete
from obstore.store import from_url

from rmqlite.kernel.requests.broker import ArchiveStatus
from tests.support.archives import Archived, contents_of, head_of, log_of, restored
from tests.support.s3 import BadBucket, s3_server

URL = "s3://bucket/brokers/a"
pytestmark = pytest.mark.xdist_group("s3")  # one server for all, which takes seconds to start


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[str]:
    """A server with a bucket, for all tests of this module; "" without --long."""
    if not pytestconfig.getoption("--long"):
        yield ""
        return
    with s3_server(tmp_path_factory.mktemp("s3") / "server.log") as address:
        yield address


@pytest.fixture
def bucket(server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[BadBucket]:
    """What the clients of this test reach."""
    with BadBucket(server) as bad:
        monkeypatch.setenv("AWS_ENDPOINT_URL", bad.address)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        yield bad


@pytest.fixture
def archived(
    tmp_path: Path, request: pytest.FixtureRequest, bucket: BadBucket
) -> Iterator[Archived]:
    """A broker that archives below a prefix of its own."""
    assert bucket
    with Archived(tmp_path / "store", f"{URL}/{request.node.name}") as made:
        yield made


def until_it_is_well(archived: Archived) -> ArchiveStatus:
    """Attempts as the broker makes them, without its pauses."""
    for _ in range(30):
        if not (status := archived.attempt()).behind_since_ms:
            return status
    raise AssertionError(f"still behind: {archived.archiving.status()}")


def is_whole(archived: Archived, target: Path) -> None:
    """The whole log can be restored."""
    assert restored(archived.url, target) == archived.end
    assert log_of(target)[: archived.end] == archived.log[: archived.end]


def test_a_good_day(archived: Archived, tmp_path: Path, bucket: BadBucket) -> None:
    """Objects of 8 MiB and more than one request each; nothing new: no request."""
    archived.send(*["x" * 500_000] * 20)
    assert archived.attempt().behind_since_ms == 0
    assert [piece.end for piece in contents_of(archived.url).pieces] == [8 << 20, archived.end]
    is_whole(archived, tmp_path / "copy")
    requests = bucket.requests
    archived.attempt()
    assert bucket.requests == requests


def test_a_bucket_that_is_away(
    archived: Archived, tmp_path: Path, bucket: BadBucket, caplog: pytest.LogCaptureFixture
) -> None:
    """For ten minutes: said once, with growing pauses; then everything is caught up."""
    archived.send("a")
    archived.attempt()
    bucket.is_away = True
    archived.send("b")
    before_ms = archived.under_test.clock.now_ms()
    for _ in range(3):
        archived.under_test.clock.forward(200_000)
        status = archived.attempt()
        assert status.behind_bytes
        assert "cannot write" in status.trouble
        assert before_ms <= status.behind_since_ms <= archived.under_test.clock.now_ms()
    bucket.is_away = False
    assert until_it_is_well(archived).trouble == ""
    said = [each.message for each in caplog.records if "archive" in each.name + each.message]
    assert len([each for each in said if each.startswith("the archive cannot be written")]) == 1
    assert len([each for each in said if each.startswith("the archive is written again")]) == 1
    is_whole(archived, tmp_path / "copy")


def test_a_bucket_that_is_away_at_the_start(archived: Archived, bucket: BadBucket) -> None:
    """The broker serves; what it stores is archived later."""
    bucket.is_away = True
    archived.send("a")
    status = archived.attempt()
    assert (status.owner, status.behind_bytes) == ("", archived.end)
    bucket.is_away = False
    assert until_it_is_well(archived).end == archived.end


def test_every_second_request_fails(archived: Archived, tmp_path: Path, bucket: BadBucket) -> None:
    """Also those of a large object, and those that own the archive."""
    bucket.is_broken = True
    for _ in range(3):
        archived.send(*["x" * 500_000] * 7)
        until_it_is_well(archived)
    bucket.is_broken = False
    is_whole(archived, tmp_path / "copy")


def test_a_slow_bucket(archived: Archived, tmp_path: Path, bucket: BadBucket) -> None:
    """8 MB a second: nothing is given up because it takes long."""
    bucket.bytes_per_s = 8_000_000
    archived.send(*["x" * 500_000] * 18)
    assert archived.attempt().trouble == ""
    is_whole(archived, tmp_path / "copy")


@pytest.mark.parametrize(
    "refusal", [(507, "InsufficientStorage"), (403, "AccessDenied"), (403, "InvalidAccessKeyId")]
)
def test_a_bucket_that_refuses(
    archived: Archived, tmp_path: Path, bucket: BadBucket, refusal: tuple[int, str]
) -> None:
    """Full, or the keys are wrong, at the start and later: the reason is said, nothing is lost."""
    for body in "ab":
        bucket.refused = refusal
        archived.send(body)
        status = archived.attempt()
        assert status.behind_bytes
        assert str(refusal[0]) in status.trouble or refusal[1] in status.trouble
        bucket.refused = None
        until_it_is_well(archived)
    is_whole(archived, tmp_path / "copy")


def test_the_head_was_removed(archived: Archived, tmp_path: Path) -> None:
    """By a rule of the bucket, say: a term begins with the whole log."""
    archived.send("a")
    archived.attempt()
    store = from_url(archived.url, client_options={"allow_http": True})
    delete(store, "head")
    archived.send("b")
    assert "it was removed" in archived.attempt().trouble
    until_it_is_well(archived)
    assert [term for term, _ in head_of(archived.url).terms] == [2]
    is_whole(archived, tmp_path / "copy")


def test_two_brokers_with_one_store_copied(archived: Archived, tmp_path: Path) -> None:
    """Both have the owner's name: the one that has begun last archives, the other one says so."""
    archived.send("a")
    archived.attempt()
    copytree(archived.under_test.config.store_path, tmp_path / "other")
    with Archived(tmp_path / "other", archived.url) as other:
        other.send("b")
        assert other.attempt().trouble == ""
        archived.send("c")
        assert "another process has taken it over" in archived.attempt().trouble
        assert archived.attempt().end <= archived.end
        other.send("d")
        assert other.attempt().trouble == ""
        is_whole(other, tmp_path / "copy")


def test_old_objects_are_removed_from_a_bucket(archived: Archived, tmp_path: Path) -> None:
    """Hundreds in one request: one by one they would keep new messages waiting for minutes."""
    for body in "abc":
        archived.send(body)
        archived.attempt()
        archived.under_test.clock.forward(200 * 3_600_000)
    assert len(contents_of(archived.url).moments) == 1
    is_whole(archived, tmp_path / "copy")

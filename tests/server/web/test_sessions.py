"""Sessions and attempts, by the clock: how long they count, and how many there are."""

from __future__ import annotations

import pytest

from rmqlite.kernel.config.addresses import parse_addresses
from rmqlite.kernel.service.access import Access
from rmqlite.kernel.words.errors import AccessDenied
from rmqlite.web import sessions as limits
from rmqlite.web.sessions import (
    ACCOUNT_SESSIONS_MAX,
    IDLE_MS_MAX,
    SESSION_MS_MAX,
    SESSIONS_MAX,
    LoginAttempts,
    Sessions,
)
from tests.support.accounts import SECRET, account, accounts
from tests.support.clock import FakeClock

HERE = "192.0.2.1:5000"
THERE = "192.0.2.2:5000"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def access() -> Access:
    return Access(accounts(*[account(f"account-{n}") for n in range(12)]))


@pytest.fixture
def sessions(access: Access, clock: FakeClock) -> Sessions:
    return Sessions(access, clock)


def is_in(sessions: Sessions, session_id: str, *, is_use: bool = True) -> bool:
    return sessions.visitor(HERE, session_id, is_use=is_use) is not None


def opened(sessions: Sessions, number: int = 0) -> str:
    return sessions.log_in(HERE, f"account-{number}", SECRET)


def test_a_session_ends_when_nobody_uses_it(sessions: Sessions, clock: FakeClock) -> None:
    """To the millisecond; each use lets it begin again."""
    session = opened(sessions)
    for _ in range(3):
        clock.forward(IDLE_MS_MAX - 1)
        assert is_in(sessions, session)
    clock.forward(IDLE_MS_MAX)
    assert not is_in(sessions, session)


def test_a_page_that_updates_itself_keeps_no_session_alive(
    sessions: Sessions, clock: FakeClock
) -> None:
    """Otherwise a page left open on a desk would never end it."""
    session = opened(sessions)
    clock.forward(IDLE_MS_MAX - 1)
    assert is_in(sessions, session, is_use=False)
    clock.forward(1)
    assert not is_in(sessions, session, is_use=False)


def test_a_busy_session_ends_too(sessions: Sessions, clock: FakeClock) -> None:
    """A stolen cookie is not good for ever."""
    session = opened(sessions)
    for _ in range(SESSION_MS_MAX // 60_000 - 1):
        clock.forward(60_000)
        assert is_in(sessions, session)
    clock.forward(60_000)
    assert not is_in(sessions, session)


def test_the_oldest_sessions_of_an_account_end_first(sessions: Sessions) -> None:
    """One account cannot end the others' sessions."""
    other = opened(sessions, 1)
    own = [opened(sessions) for _ in range(ACCOUNT_SESSIONS_MAX + 1)]
    assert [is_in(sessions, each) for each in own[:2]] == [False, True]
    assert is_in(sessions, own[-1])
    assert is_in(sessions, other)


def test_there_are_not_more_sessions_than_the_limit(sessions: Sessions) -> None:
    """Of all accounts together; the oldest ends."""
    found = [opened(sessions, n // ACCOUNT_SESSIONS_MAX) for n in range(SESSIONS_MAX + 1)]
    assert [is_in(sessions, each) for each in found].count(True) == SESSIONS_MAX
    assert not is_in(sessions, found[0])


def test_sessions_that_are_over_take_no_room(sessions: Sessions, clock: FakeClock) -> None:
    """They are not looked at any more, so nothing else would remove them."""
    for number in range(SESSIONS_MAX):
        opened(sessions, number // ACCOUNT_SESSIONS_MAX)
    clock.forward(SESSION_MS_MAX)
    opened(sessions)
    assert len(sessions._sessions) == 1


def test_a_session_says_nothing_of_the_secret(sessions: Sessions) -> None:
    """Not where an error or a debugger shows it; nor the id, which is as good as the secret."""
    session = opened(sessions)
    shown = repr(list(sessions._sessions.items()))
    assert SECRET not in shown
    assert session not in shown
    assert "digest" not in shown


def test_where_everybody_is_trusted_for_an_account_the_session_is_good_only_there(
    clock: FakeClock,
) -> None:
    """An account's whiteRemoteAddress, as on the other protocols: no secret is asked there."""
    known = account("trusted", white_remote_address=parse_addresses("192.0.2.1"))
    sessions = Sessions(Access(accounts(known)), clock)
    session = sessions.log_in(HERE, "trusted", "another secret")
    visitor = sessions.visitor(HERE, session, is_use=True)
    assert visitor is not None
    assert (visitor.access_key, visitor.caller.account) == ("trusted", None)
    assert sessions.visitor(THERE, session, is_use=True) is None
    with pytest.raises(AccessDenied):
        sessions.log_in(THERE, "trusted", "another secret")


def waits(attempts: LoginAttempts, clock: FakeClock, address: str, count: int) -> list[int]:
    """The waits after so many failures, each as soon as it may be."""
    found = []
    for _ in range(count):
        attempts.fail(address, "operator")
        found.append(attempts.wait_s(address, "operator"))
        clock.forward(found[-1] * 1000 - 1)
        assert attempts.wait_s(address, "operator") == 1
        clock.forward(1)
        assert attempts.wait_s(address, "operator") == 0
    return found


def test_an_address_waits_longer_after_each_failure(clock: FakeClock) -> None:
    """A thousand guesses take most of a day."""
    assert waits(LoginAttempts(clock), clock, HERE, 9) == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_an_account_waits_too_but_not_for_long(clock: FakeClock) -> None:
    """Each guess may come from another address; and its owner must get in."""
    attempts, found = LoginAttempts(clock), []
    for number in range(6):
        attempts.fail(f"192.0.2.{number}:5000", "operator")
        found.append(attempts.wait_s("198.51.100.1:5000", "operator"))
        clock.forward(found[-1] * 1000)
    assert found == [1, 2, 4, 5, 5, 5]
    assert attempts.wait_s("198.51.100.1:5000", "another") == 0


def test_where_an_account_has_logged_in_others_cannot_make_it_wait(clock: FakeClock) -> None:
    """Whoever tries all the time would always be the first after each wait."""
    attempts = LoginAttempts(clock)
    attempts.succeed(HERE, "operator")
    for _ in range(5):
        attempts.fail(THERE, "operator")
    assert attempts.wait_s(THERE, "operator") > 0
    assert attempts.wait_s(HERE, "operator") == 0
    attempts.fail(HERE, "operator")
    assert attempts.wait_s(HERE, "operator") == 1


def test_a_success_ends_the_waiting_of_both(clock: FakeClock) -> None:
    """The next typing error waits a second, not a minute."""
    attempts = LoginAttempts(clock)
    for _ in range(5):
        attempts.fail(HERE, "operator")
    clock.forward(60_000)
    attempts.succeed(HERE, "operator")
    assert attempts.wait_s(HERE, "another") == attempts.wait_s(THERE, "operator") == 0
    attempts.fail(HERE, "another")
    assert attempts.wait_s(HERE, "another") == 1


def test_failures_are_forgotten(clock: FakeClock) -> None:
    """After a quarter of an hour without another one."""
    attempts = LoginAttempts(clock)
    for pause_ms, expected in ((0, 16), (limits.FORGOTTEN_MS - 1, 32), (limits.FORGOTTEN_MS, 1)):
        clock.forward(pause_ms)
        for _ in range(5 if pause_ms == 0 else 1):
            attempts.fail(HERE, "operator")
        assert attempts.wait_s(HERE, "operator") == expected
    assert len(attempts._failed) == 2


def test_the_table_of_failures_is_bounded(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has many addresses, or thinks of many accounts, does not fill the memory."""
    monkeypatch.setattr(limits, "ATTEMPTS_MAX", 10)
    monkeypatch.setattr(limits, "KNOWN_MAX", 5)
    attempts = LoginAttempts(clock)
    for number in range(50):
        attempts.fail(f"192.0.2.{number}:5000", f"account-{number}" * 1_000)
        attempts.succeed(f"192.0.3.{number}:5000", f"account-{number}")
    assert len(attempts._failed) == 10
    assert max([len(name.access_key) for name in attempts._failed]) <= 256
    assert len(attempts._known) == 5


@pytest.mark.parametrize(
    ("first", "second", "is_same"),
    [
        ("[2001:db8::1]:5000", "[2001:db8::2:3]:6000", True),
        ("[2001:db8::1]:5000", "[2001:db8:0:1::1]:5000", False),
        ("[::ffff:192.0.2.1]:5000", "192.0.2.1:6000", True),
        ("[::ffff:192.0.2.1]:5000", "[::ffff:192.0.2.2]:5000", False),
        ("[fe80::1%eth0]:5000", "[fe80::2]:5000", True),
        ("192.0.2.1:5000", "192.0.2.2:5000", False),
        ("", ":", True),
    ],
)
def test_all_addresses_of_one_network_of_ipv6_are_one(
    first: str, second: str, is_same: bool, clock: FakeClock
) -> None:
    """Whoever has one of them has 2^64."""
    attempts = LoginAttempts(clock)
    attempts.fail(first, "operator")
    assert (attempts.wait_s(second, "another") > 0) is is_same

"""Other brokers at the name server: who is alive, and which topics it has."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest

from rmqlite.kernel.words.errors import Overloaded
from rmqlite.protocols.remoting import registry as limits
from rmqlite.protocols.remoting.bytes.fields import FieldError
from rmqlite.protocols.remoting.bytes.registration import RegisteredTopic, Registration
from rmqlite.protocols.remoting.bytes.requests.groups import TableVersionBody
from rmqlite.protocols.remoting.registry import Registrant, Registry
from tests.support.clock import FakeClock

OWN = Registrant("ours", "C", 0, "10.0.0.1:10911")
A = Registrant("a", "C", 0, "10.0.0.2:10911", "10.0.0.2:10912")
A_SLAVE = Registrant("a", "C", 1, "10.0.0.3:10911")
ROW = RegisteredTopic(4, 4, 6)


class Names:
    """A registry, its clock, and short ways to use both."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.registry = Registry(OWN, self.clock.now_ms)
        self._bodies = 0

    def register(
        self,
        broker: Registrant,
        *topics: str,
        version: int = 1,
        connection: object = "first",
        rows: Mapping[str, RegisteredTopic] | None = None,
    ) -> None:
        """Like a new body; a topic of the broker's own name makes the table a whole one."""
        table = dict.fromkeys((broker.name, *topics), ROW) if rows is None else dict(rows)
        self._bodies += 1
        registration = Registration(TableVersionBody(version, version), table)
        self.registry.register(broker, (self._bodies,), registration, connection)

    def topics(self, name: str = "a") -> set[str]:
        found = [each for each in self.registry.named() if each.name == name]
        return set(found[0].topics) - {name} if found else set()

    def addresses(self, name: str = "a") -> dict[int, str]:
        return {
            key: address
            for each in self.registry.named()
            if each.name == name
            for key, address in each.addresses
        }

    def perm(self, topic: str, name: str = "a") -> int:
        (found,) = [each.topic(topic) for each in self.registry.named() if each.name == name]
        assert found is not None
        return found.perm


@pytest.fixture
def names() -> Names:
    return Names()


def test_a_whole_table_removes_what_it_lacks(names: Names) -> None:
    """RocketMQ's name server keeps deleted topics until somebody deletes them there, too."""
    names.register(A, "T", "U")
    assert names.topics() == {"T", "U"}
    names.register(A, "U", "V", version=2)
    assert names.topics() == {"U", "V"}


def test_a_table_under_the_same_version_is_not_looked_at(names: Names) -> None:
    """An older version is another one."""
    names.register(A, "T", version=5)
    names.register(A, "U", version=5)
    assert names.topics() == {"T"}
    names.register(A, "U", version=4)
    assert names.topics() == {"U"}


def test_a_topic_that_comes_by_itself_is_added(names: Names) -> None:
    """As RocketMQ's broker sends it after updateTopic; the whole table follows under the same
    version, and counts."""
    names.register(A, "T", "U")
    names.register(A, version=2, rows={"V": ROW})
    assert names.topics() == {"T", "U", "V"}
    names.register(A, "T", "V", version=2)
    assert names.topics() == {"T", "V"}
    names.register(A, version=3, rows={"W": ROW, "X": ROW})
    assert names.topics() == {"T", "V", "W", "X"}, "several, as RocketMQ 5 does"


def test_a_single_topic_that_comes_first_hides_nothing(names: Names) -> None:
    """After a restart of the name server: RocketMQ's then takes the whole table for known."""
    names.register(A, rows={"V": ROW}, version=7)
    assert names.topics() == {"V"}
    assert names.registry.compare(A, TableVersionBody(7, 7), "first") is None, (
        "so the broker sends it whole"
    )
    names.register(A, "T", "V", version=7)
    assert names.topics() == {"T", "V"}


def test_only_a_master_brings_topics_and_they_stay_for_its_slaves(names: Names) -> None:
    """Consumers go on with a slave: the queues stay, and the master's address goes."""
    names.register(A_SLAVE, "S")
    assert names.topics() == set()
    names.register(A, "T", connection="of the master")
    assert names.addresses() == {0: A.address, 1: A_SLAVE.address}
    assert names.registry.master_of("a") == A
    names.registry.ended("of the master")
    assert names.addresses() == {1: A_SLAVE.address}
    assert names.topics() == {"T"}
    assert names.registry.master_of("a") is None
    names.registry.ended("first")
    assert [*names.registry.named()] == []
    names.register(A, "T")
    assert names.topics() == {"T"}, "under the version of before: the address is new"


def test_a_second_address_under_a_living_master_is_refused(names: Names) -> None:
    """Both have Java's default name: RocketMQ's routes change with each registration."""
    names.register(A, "T")
    other = A._replace(address="10.0.0.9:10911")
    with pytest.raises(FieldError, match=r"10\.0\.0\.9:10911.*10\.0\.0\.2:10911"):
        names.register(other, "U")
    names.clock.forward(limits.EXPIRY_MS)
    names.register(other, "U")
    assert (names.topics(), names.addresses()) == ({"U"}, {0: other.address})


@pytest.mark.parametrize(
    ("broker", "named"),
    [
        (A._replace(name="ours"), r"10\.0\.0\.2:10911.*10\.0\.0\.1:10911"),
        (A._replace(address=OWN.address), "that of ours"),
        (A_SLAVE._replace(cluster="D"), "clusterName"),
        (A._replace(name="b"), "alive at"),
    ],
    ids=["our name", "our address", "two clusters", "two names"],
)
def test_what_contradicts_a_living_broker_is_refused(
    names: Names, broker: Registrant, named: str
) -> None:
    """And changes nothing; this name server's own broker lives always."""
    names.register(A, "T")
    with pytest.raises(FieldError, match=named):
        names.register(broker, "U", connection="another")
    assert (names.topics(), names.addresses()) == ({"T"}, {0: A.address})


def test_this_broker_may_register_at_itself(names: Names) -> None:
    """Where all brokers have the same namesrvAddr; its topics are known better."""
    assert names.registry.repeats(OWN, (), "its connection")
    assert names.registry.compare(OWN, TableVersionBody(3, 3), "first") == TableVersionBody(3, 3)
    assert [*names.registry.named()] == []


def test_the_same_address_with_another_id_moves(names: Names) -> None:
    """A slave that became a master, or a broker with a new name on the same connection."""
    names.register(A_SLAVE)
    names.register(A_SLAVE._replace(broker_id=2))
    assert names.addresses() == {2: A_SLAVE.address}
    names.register(A_SLAVE._replace(broker_id=0), "T")
    assert (names.addresses(), names.topics()) == ({0: A_SLAVE.address}, {"T"})
    names.register(A_SLAVE._replace(name="b", broker_id=0), "U")
    assert (names.addresses(), names.addresses("b")) == ({}, {0: A_SLAVE.address})
    names.register(A_SLAVE._replace(name="b", broker_id=0, cluster="D"), "U")
    assert [each.cluster for each in names.registry.named()] == ["D"]


def test_a_slave_may_come_with_another_address(names: Names) -> None:
    """Nobody sends to it."""
    names.register(A_SLAVE)
    names.register(A_SLAVE._replace(address="10.0.0.9:1"))
    assert names.addresses() == {1: "10.0.0.9:1"}
    assert len(names.registry.rows()) == 1


def test_who_unregisters_late_does_not_remove_its_successor(names: Names) -> None:
    """RocketMQ removes whatever has the name."""
    names.register(A, "T")
    names.registry.unregister("a", 0, "10.0.0.9:10911")
    names.registry.unregister("a", 1, A.address)
    names.registry.unregister("b", 0, A.address)
    assert names.topics() == {"T"}
    names.registry.unregister("a", 0, A.address)
    assert (names.topics(), names.addresses()) == (set(), {})


def test_who_is_silent_for_two_minutes_is_gone(names: Names) -> None:
    """A registration of any kind counts, and an equal version; another version does not."""
    names.register(A, "T")
    names.register(A_SLAVE, "S")
    for _ in range(3):
        names.clock.forward(limits.EXPIRY_MS - 1)
        assert names.registry.compare(A, TableVersionBody(1, 1), "first") == TableVersionBody(1, 1)
        assert names.registry.repeats(A_SLAVE, (2,), "first")
    names.clock.forward(limits.EXPIRY_MS - 1)
    assert names.registry.compare(A, TableVersionBody(2, 2), "first") == TableVersionBody(1, 1)
    assert names.registry.repeats(A_SLAVE, (2,), "first")
    names.clock.forward(1)
    assert names.addresses() == {1: A_SLAVE.address}
    names.clock.forward(limits.EXPIRY_MS)
    assert names.addresses() == {}


def test_the_last_connection_counts(names: Names) -> None:
    """A broker that has connected again stays when its old connection is closed; all that came
    over one connection go with it."""
    names.register(A, "T", connection="old")
    names.register(A_SLAVE, "S", connection="new")
    assert names.registry.repeats(A, (1,), "new")
    names.registry.ended("old")
    assert names.addresses() == {0: A.address, 1: A_SLAVE.address}
    names.registry.ended("new")
    assert names.addresses() == {}


def test_a_broker_that_only_compares_its_table_has_its_new_connection(names: Names) -> None:
    """After a lost connection it sends its table only if that has changed."""
    names.register(A, "T", connection="old")
    assert names.registry.compare(A, TableVersionBody(1, 1), "new") == TableVersionBody(1, 1)
    names.registry.ended("old")
    assert names.addresses() == {0: A.address}
    names.registry.ended("new")
    assert names.addresses() == {}


def test_the_same_body_again_is_not_read(names: Names) -> None:
    """500 brokers with 1,000 topics would take half of the loop's time."""
    names.register(A, "T")
    assert names.registry.repeats(A, (1,), "first")
    assert not names.registry.repeats(A, (2,), "first")
    assert not names.registry.repeats(A._replace(ha_address="elsewhere:1"), (1,), "first")
    names.register(A, rows={"V": ROW}, version=2)
    assert not names.registry.repeats(A, (2,), "first"), "that was no whole table"


def test_producers_are_kept_away_until_the_next_other_table(names: Names) -> None:
    """wipeWritePerm; a table under the version of before does not undo it."""
    names.register(A, rows={"a": ROW, "T": ROW, "TBW102": RegisteredTopic(8, 8, 7)})
    assert names.registry.set_writable("a", may_write=False) == 3
    assert names.registry.set_writable("nobody", may_write=False) == 0
    assert (names.perm("T"), names.perm("TBW102")) == (4, 5)
    names.register(A, "T", "U")
    names.register(A, rows={"V": ROW}, version=2)
    assert (names.perm("T"), names.perm("V")) == (4, 4)
    assert names.registry.set_writable("a", may_write=True) == 4
    assert (names.perm("T"), names.perm("TBW102")) == (6, 7)
    names.registry.set_writable("a", may_write=False)
    names.register(A, "T", version=3)
    assert names.perm("T") == 6


def test_a_topic_is_forgotten_of_all_or_of_a_cluster(names: Names) -> None:
    """Until the broker has another table."""
    names.register(A, "T", "U")
    names.register(Registrant("b", "D", 0, "10.0.0.4:1"), "T", "U")
    names.registry.forget_topic("T", "D")
    assert (names.topics(), names.topics("b")) == ({"T", "U"}, {"U"})
    names.registry.forget_topic("U", "")
    assert (names.topics(), names.topics("b")) == ({"T"}, set())
    names.register(A, "T", "U")
    assert names.topics() == {"T"}
    names.register(A, "T", "U", version=2)
    assert names.topics() == {"T", "U"}


@pytest.mark.parametrize(
    ("limit", "most"), [("BROKERS_MAX", 2), ("TOPICS_MAX", 5), ("NAME_CHARS_MAX", 12)]
)
def test_each_limit_refuses_and_keeps_what_is_there(
    names: Names, limit: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And has room again when something is gone."""
    monkeypatch.setattr(limits, limit, most)
    names.register(A, "T1", "T2")
    b, c = Registrant("b", "C", 0, "10.0.0.4:1"), Registrant("c", "C", 0, "10.0.0.5:1")
    names.register(b)
    with pytest.raises(Overloaded, match=limit):
        names.register(c, "T3", "T4", "T5")
    assert (names.topics(), names.addresses("c")) == ({"T1", "T2"}, {})
    names.register(A, "U1", "U2", version=2)
    names.registry.unregister("a", 0, A.address)
    names.register(c, "T3", "T4")
    assert names.topics("c") == {"T3", "T4"}


def test_the_counts_behind_the_limits_are_right(names: Names) -> None:
    """After anything that may happen, in any order."""
    chance = random.Random(34)
    brokers = [
        Registrant(name, "C", broker_id, f"10.0.0.{number}:1")
        for number, (name, broker_id) in enumerate(
            [("a", 0), ("a", 1), ("b", 0), ("b", 0), ("c", 0), ("c", 2)], 2
        )
    ]
    for step in range(3_000):
        broker: Any = chance.choice(brokers)
        connection = chance.choice("xyz")
        what = chance.random()
        topics = [f"T{chance.randrange(9)}" for _ in range(chance.randrange(6))]
        if what < 0.6:
            rows = dict.fromkeys(topics, ROW) if what < 0.2 else None
            try:
                names.register(broker, *topics, version=step, connection=connection, rows=rows)
            except FieldError:
                continue
        elif what < 0.7:
            names.registry.unregister(broker.name, broker.broker_id, broker.address)
        elif what < 0.8:
            names.registry.forget_topic(f"T{chance.randrange(9)}", "")
        elif what < 0.9:
            names.registry.ended(connection)
        else:
            names.clock.forward(chance.randrange(40_000))
        found = [*names.registry.named()]
        assert names.registry._topics == sum(len(each.topics) for each in found)
        assert names.registry._chars == sum(len(t) for each in found for t in each.topics)
        assert all(each.entries for each in found)
        rows_of = {row.address for row in names.registry.rows()}
        assert rows_of == names.registry._entries.keys()
        assert rows_of == {address for each in found for _, address in each.addresses}


def test_the_own_brokers_name_has_its_standby_too() -> None:
    """Of one name the master, which registers nowhere here, and its standby, which does."""
    names = Names()
    names.register(A_SLAVE._replace(name="ours"))
    own = names.registry.own_name
    assert dict(own.addresses) == {0: OWN.address, 1: A_SLAVE.address}
    assert [*names.registry.named()] == []
    assert [row.address for row in names.registry.rows()] == [A_SLAVE.address]
    names.registry.ended("first")
    assert dict(own.addresses) == {0: OWN.address}


def test_a_standbys_name_server_has_the_masters_topics() -> None:
    """Also when the master is lost: a route without a master lets producers ask again and again."""
    names = Names()
    names.registry = Registry(OWN._replace(broker_id=1), names.clock.now_ms)
    master = A._replace(name="ours")
    names.register(master, "T")
    own = names.registry.own_name
    assert dict(own.addresses) == {0: A.address, 1: OWN.address}
    assert names.registry.master_of("ours") == master
    with pytest.raises(FieldError, match=r"10\.0\.0\.1:10911"):
        names.register(A_SLAVE._replace(name="ours"))
    with pytest.raises(FieldError, match=r"10\.0\.0\.2:10911"):
        names.register(master._replace(address="10.0.0.9:1"), "T")
    names.registry.ended("first")
    assert dict(own.addresses) == {1: OWN.address}
    assert own.topic("T") == ROW

"""The decision who may do what: each right, on each kind, by name and by default."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from pydantic import SecretStr, ValidationError

from rmqlite.features.accounts.accounts import (
    DENY,
    PERMS,
    Account,
    Perm,
    Role,
    parse_perm,
    perm_text,
)
from rmqlite.kernel.service.access import Need, Right
from rmqlite.kernel.words.names import (
    AUTO_CREATE_TOPIC,
    SCHEDULE_GROUP,
    SCHEDULE_TOPIC,
    SYSTEM_TOPICS,
    TRACE_TOPIC,
    TRANSACTION_GROUP,
)

ADMIN, PUB, SUB, VIEW = Right.ADMIN, Right.PUB, Right.SUB, Right.VIEW
BOTH = PERMS["PUB|SUB"]
SECRET = "ask-me-not"


def account(
    *,
    role: Role = Role.USER,
    topic: Perm = DENY,
    group: Perm = DENY,
    topics: Mapping[str, Perm] | None = None,
    groups: Mapping[str, Perm] | None = None,
) -> Account:
    return Account(
        access_key="service",
        secret=SecretStr(SECRET),
        role=role,
        default_topic_perm=topic,
        default_group_perm=group,
        topic_perms=topics or {},
        group_perms=groups or {},
    )


def may(who: Account, *needs: Need) -> bool:
    return who.why_not(needs) is None


@pytest.mark.parametrize("perm", ["DENY", "PUB", "SUB", "PUB|SUB"])
@pytest.mark.parametrize("right", [PUB, SUB, VIEW])
@pytest.mark.parametrize("by", ["topic", "topics", "group", "groups"])
def test_a_right_is_given_by_name_or_by_default(perm: str, right: Right, by: str) -> None:
    """Who may consume may also look; ours is RocketMQ's table, and this one more right."""
    given = parse_perm(perm)
    if by == "topic":
        who = account(topic=given, group=BOTH)
    elif by == "topics":
        who = account(topics={"n": given}, topic=BOTH, group=BOTH)
    elif by == "group":
        who = account(group=given, topic=BOTH)
    else:
        who = account(groups={"n": given}, topic=BOTH, group=BOTH)
    kind = "topic" if by.startswith("topic") else "group"
    need = Need(right, "topic" if kind == "topic" else "group", "n")
    expected = (SUB if right is VIEW else right) in given
    assert who.why_not([need]) == (None if expected else f"No default permission for {kind}:n")


@pytest.mark.parametrize("kind", ["topic", "group"])
def test_a_name_does_not_give_the_other_kind(kind: str) -> None:
    """The topic orders and the group orders are two things."""
    names = {"orders": BOTH}
    who = account(topics=names) if kind == "topic" else account(groups=names)
    assert may(who, Need(SUB, "topic", "orders")) == (kind == "topic")
    assert may(who, Need(SUB, "group", "orders")) == (kind == "group")


def test_nothing_given_is_nothing_allowed() -> None:
    """RocketMQ's default is DENY."""
    who = account()
    for right in Right:
        for need in (Need(right, "topic", "t"), Need(right, "group", "g"), Need(right)):
            assert not may(who, need)
    assert may(who)


def test_every_need_counts_and_the_first_that_is_missing_is_told() -> None:
    """A pull needs the topic and the group."""
    who = account(topics={"t": BOTH}, groups={"g": DENY})
    needs = [Need(SUB, "topic", "t"), Need(SUB, "group", "g"), Need(SUB, "topic", "u")]
    assert who.why_not(needs) == "No default permission for group:g"
    assert who.why_not(needs[:1]) is None


def test_an_admin_whose_account_names_nothing_passes_everything() -> None:
    """RocketMQ's rule; defaults do not narrow it."""
    who = account(role=Role.ADMIN)
    for right in Right:
        for name in ("t", SCHEDULE_TOPIC, "%RETRY%g", f"%DLQ%{SCHEDULE_GROUP}"):
            assert may(who, Need(right, "topic", name), Need(right, "group", name), Need(right))


@pytest.mark.parametrize("names", [{"topics": {"t": PERMS["PUB"]}}, {"groups": {"h": DENY}}])
def test_an_admin_whose_account_names_something_sends_and_consumes_only_that(
    names: Mapping[str, Mapping[str, Perm]],
) -> None:
    """RocketMQ's rule, which surprises; administrating and looking stay."""
    who = account(role=Role.ADMIN, **names)  # type: ignore[arg-type]
    assert may(who, Need(ADMIN, "topic", "u"), Need(ADMIN), Need(VIEW, "topic", "u"), Need(VIEW))
    assert who.why_not([Need(PUB, "topic", "u")]) == "No default permission for topic:u"
    assert who.why_not([Need(SUB, "group", "g")]) == "No default permission for group:g"
    assert may(who, Need(PUB, "topic", "t")) == ("topics" in names)


def test_who_is_no_admin_changes_nothing() -> None:
    """In RocketMQ's words, with the protocol's words for the request."""
    who = account(topic=BOTH, group=BOTH, topics={"t": BOTH})
    for need in (Need(ADMIN, "topic", "t"), Need(ADMIN, "group", "g")):
        assert who.why_not([need]) == (
            f"Need admin permission for {need.subject}, but accessKey=service is not"
        )
    assert who.why_not([Need(ADMIN, "", "request code=17")]) == (
        "Need admin permission for request code=17, but accessKey=service is not"
    )


def test_a_viewer_looks_at_everything_and_does_nothing() -> None:
    """Also at what is the broker's own."""
    who = account(role=Role.VIEWER)
    for name in ("t", SCHEDULE_TOPIC, "%DLQ%g", TRACE_TOPIC):
        assert may(who, Need(VIEW, "topic", name), Need(VIEW, "group", name), Need(VIEW))
        for right in (PUB, SUB, ADMIN):
            assert not may(who, Need(right, "topic", name))
            assert not may(who, Need(right, "group", name))
    why = "Viewers change nothing: PUB on topic:t, and accessKey=service is one"
    assert who.why_not([Need(PUB, "topic", "t")]) == why


def test_a_viewer_with_rights_still_does_nothing() -> None:
    """The file's reader refuses such an account; whoever builds one by code gets no more."""
    who = account(role=Role.VIEWER, topic=BOTH, topics={"t": BOTH})
    assert not may(who, Need(PUB, "topic", "t"))


def test_looking_at_the_broker_is_for_viewers_and_admins() -> None:
    """Its state has everybody's names in it."""
    who = account(topic=BOTH, group=BOTH)
    why = "Need viewer or admin permission for the broker, but accessKey=service is not"
    assert who.why_not([Need(VIEW)]) == why


@pytest.mark.parametrize("prefix", ["%RETRY%", "%DLQ%"])
@pytest.mark.parametrize("right", [PUB, SUB, VIEW])
@pytest.mark.parametrize("perm", ["DENY", "PUB", "SUB"])
def test_retry_and_dead_letter_topics_follow_their_group(
    prefix: str, right: Right, perm: str
) -> None:
    """Who consumes as the group also sends its retries; the topics' default counts for nothing."""
    need = Need(right, "topic", f"{prefix}g")
    by_name = account(groups={"g": parse_perm(perm)}, topic=BOTH, group=BOTH)
    by_default = account(group=parse_perm(perm), topic=BOTH)
    for who in (by_name, by_default):
        refusal = None if perm == "SUB" else "No default permission for group:g"
        assert who.why_not([need]) == refusal


def test_a_dead_letter_topic_that_is_named_has_rights_of_its_own() -> None:
    """An operator gives a colleague the dead letters, and not the group."""
    who = account(topics={"%DLQ%g": PERMS["SUB"]})
    assert may(who, Need(SUB, "topic", "%DLQ%g"), Need(VIEW, "topic", "%DLQ%g"))
    assert not may(who, Need(PUB, "topic", "%DLQ%g"))
    assert not may(who, Need(SUB, "group", "g"))
    denied = account(topics={"%DLQ%g": DENY}, group=BOTH, topic=BOTH)
    why = "No default permission for topic:%DLQ%g"
    assert denied.why_not([Need(SUB, "topic", "%DLQ%g")]) == why
    assert may(denied, Need(SUB, "group", "g"), Need(SUB, "topic", "%DLQ%h"))


@pytest.mark.parametrize("topic", sorted({*SYSTEM_TOPICS, "rmq_sys_BULK_JOBS"}))
def test_a_default_does_not_reach_a_system_topic(topic: str) -> None:
    """SCHEDULE_TOPIC_XXXX holds the waiting messages of all topics."""
    for_everybody = {(PUB, TRACE_TOPIC), (VIEW, AUTO_CREATE_TOPIC)}
    who = account(topic=BOTH, group=BOTH)
    assert {(right, topic) for right in Right if may(who, Need(right, "topic", topic))} == {
        each for each in for_everybody if each[1] == topic
    }
    named = account(topics={topic: PERMS["SUB"]})
    assert may(named, Need(SUB, "topic", topic), Need(VIEW, "topic", topic))
    assert not may(named, Need(ADMIN, "topic", topic))
    admin = account(role=Role.ADMIN, topic=BOTH, topics={"t": BOTH})
    assert may(admin, Need(SUB, "topic", topic))


def test_everybody_sends_traces_unless_it_is_denied_by_name() -> None:
    """A client with traces works without a right for them, as in RocketMQ."""
    traces = Need(PUB, "topic", TRACE_TOPIC)
    assert may(account(), traces)
    assert may(account(role=Role.ADMIN, topics={"t": DENY}), traces)
    assert not may(account(topics={TRACE_TOPIC: DENY}), traces)
    assert not may(account(), Need(PUB, "group", TRACE_TOPIC))


@pytest.mark.parametrize("group", [SCHEDULE_GROUP, TRANSACTION_GROUP])
def test_a_default_does_not_reach_a_system_group(group: str) -> None:
    """The dead letters of SCHEDULE_CONSUMER come from every topic."""
    needs = [Need(SUB, "group", group), Need(VIEW, "topic", f"%DLQ%{group}")]
    who = account(group=BOTH, topic=BOTH)
    assert [may(who, need) for need in needs] == [False, False]
    assert may(account(groups={group: BOTH}), *needs)


def test_a_long_name_is_shortened_in_the_refusal() -> None:
    """It comes from the network."""
    why = account().why_not([Need(PUB, "topic", "t" * 10_000)])
    assert why is not None
    assert len(why) < 250


def test_rights_are_spelled_in_one_way() -> None:
    """Whichever way the file does."""
    assert [perm_text(perm) for perm in PERMS.values()] == [
        *("DENY", "PUB", "SUB", "PUB|SUB", "PUB|SUB"),
    ]


def test_a_secret_is_in_no_text_of_an_account() -> None:
    """Neither of one that is right, nor of the error for one that is wrong."""
    who = account()
    texts = [repr(who), str(who), who.model_dump_json(), repr(who.model_dump())]
    with pytest.raises(ValidationError) as caught:
        Account(access_key="short", secret=SecretStr(SECRET))
    with pytest.raises(ValidationError) as short:
        Account(access_key="service", secret=SecretStr(SECRET[:5]))
    texts += [str(caught.value), str(short.value)]
    assert [each for each in texts if SECRET[:5] in each] == []
    assert who.secret.get_secret_value() == SECRET

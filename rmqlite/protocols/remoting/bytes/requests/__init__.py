"""The requests by noun, each with its code, its header and its bodies; and all of them by code.

row = groups.GET_MAX_OFFSET
asked = row.fields.read(command.ext)            # a QueueOfTopic, or a FieldError
ext = row.answer.write(OffsetAnswer(offset=17))

A field of a JSON body that has a default may be absent, or null, in what is read; a value of None
is not written.  The table has all requests of RocketMQ 4.9, and of RocketMQ 5 what its remoting
client and its mqadmin send for timers, lite pulls and POP.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rmqlite.protocols.remoting.bytes.requests import (
    broker,
    clients,
    groups,
    messages,
    name_server,
    pop,
    sends,
    topics,
)
from rmqlite.protocols.remoting.bytes.requests.request import RefusedRequest, RemotingRequest

_NAMED: Final[Mapping[int, tuple[str, RemotingRequest[Any, Any]]]] = {
    row.code: (name, row)
    for noun in (sends, messages, pop, groups, clients, topics, broker, name_server)
    for name, row in vars(noun).items()
    if isinstance(row, RemotingRequest)
}
ANSWERED: Final[Mapping[int, RemotingRequest[Any, Any]]] = {
    code: row for code, (_, row) in sorted(_NAMED.items())
}
"""With the requests that only a client is asked, which a server does not answer either."""

NAMES: Final[Mapping[int, str]] = {code: _NAMED[code][0] for code in ANSWERED}
"""RocketMQ's names of the requests that are answered."""

_ACCESS: Final = "access rules are no part of this protocol here"
_UNUSED: Final = "no client and no command of mqadmin sends it"

REFUSED: Final[Mapping[int, RefusedRequest]] = {
    code: RefusedRequest(code, name, reason)
    for code, name, reason in (
        (13, "QUERY_BROKER_OFFSET", _UNUSED),
        (22, "GET_TOPIC_CONFIG_LIST", _UNUSED),
        (23, "GET_TOPIC_NAME_LIST", _UNUSED),
        (27, "TRIGGER_DELETE_FILES", _UNUSED),
        (47, "GET_CLIENT_CONFIG", _UNUSED),
        (50, "UPDATE_AND_CREATE_ACL_CONFIG", _ACCESS),
        (51, "DELETE_ACL_CONFIG", _ACCESS),
        (52, "GET_BROKER_CLUSTER_ACL_INFO", _ACCESS),
        (53, "UPDATE_GLOBAL_WHITE_ADDRS_CONFIG", _ACCESS),
        (54, "GET_BROKER_CLUSTER_ACL_CONFIG", _ACCESS),
        (209, "SUSPEND_CONSUMER", _UNUSED),
        (210, "RESUME_CONSUMER", _UNUSED),
        (211, "RESET_CONSUMER_OFFSET_IN_CONSUMER", _UNUSED),
        (212, "RESET_CONSUMER_OFFSET_IN_BROKER", _UNUSED),
        (213, "ADJUST_CONSUMER_THREAD_POOL", _UNUSED),
        (214, "WHO_CONSUME_THE_MESSAGE", _UNUSED),
        (301, "REGISTER_FILTER_SERVER", "filter servers are no longer part of RocketMQ"),
        (302, "REGISTER_MESSAGE_FILTER_CLASS", "filter servers are no longer part of RocketMQ"),
        (308, "QUERY_CORRECTION_OFFSET", _UNUSED),
        (311, "GET_UNIT_TOPIC_LIST", "units are not kept"),
        (312, "GET_HAS_UNIT_SUB_TOPIC_LIST", "units are not kept"),
        (313, "GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST", "units are not kept"),
        (323, "RESUME_CHECK_HALF_MESSAGE", "only RocketMQ's web console sends it"),
    )
}

"""The fields that a browser has sent."""

from __future__ import annotations

from urllib.parse import quote, urlencode

import pytest

from rmqlite.features.changes.requests import PendingFilter
from rmqlite.features.dead_letters.requests import DeadLetterFilter
from rmqlite.kernel.requests.broker import ScheduleAction
from rmqlite.kernel.words.clock import local_text
from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.web.args import FIELDS_MAX, Args

NOW_MS = 1_790_000_000_000


def test_a_filter_of_letters_is_what_its_fields_say() -> None:
    """Every field is read; blanks around a value do not count."""
    args = Args(
        "topic=+orders+&tag=new&key=k&reason=HTTP+503&since=-1h&until=1790000000001"
        "&id=abc&id=&id=+d+e+&id=abc&kind=no+answer+for+%23+s&job=j-1"
    )
    since_ms, until_ms = NOW_MS - 3_600_000, NOW_MS + 1
    ids, kind = ("abc", "d e"), "no answer for # s"
    assert args.letter_filter(NOW_MS) == DeadLetterFilter(
        "orders", "new", "k", "HTTP 503", since_ms, until_ms, ids, kind, "j-1"
    )
    assert Args("").letter_filter(NOW_MS) == DeadLetterFilter()


def test_a_filter_of_what_waits_is_what_its_fields_say() -> None:
    """The fields mean the same as the options of the command line."""
    args = Args("level=5&topic=%25RETRY%25shop&from=%2B10m&until=%2B1h&origin=orders&reason=x")
    assert args.pending_filter(NOW_MS) == PendingFilter(
        levels=(5,),
        topic="%RETRY%shop",
        due_from_ms=NOW_MS + 600_000,
        due_until_ms=NOW_MS + 3_600_000,
        origin_topic="orders",
        reason="x",
    )
    assert Args("").pending_filter(NOW_MS) == PendingFilter()


def test_a_time_is_local_or_from_now_or_a_number() -> None:
    """Times as a person writes them, and as our links contain them."""
    moment_ms = NOW_MS // 60_000 * 60_000
    local = local_text(moment_ms)[:16]
    for text in (local, local.replace(" ", "T"), str(moment_ms)):
        assert Args(urlencode({"t": text})).moment_ms("t", NOW_MS) == moment_ms
    assert Args("").moment_ms("t", NOW_MS) is None
    assert Args("t=-999d").moment_ms("t", 1_000) == 0
    for wrong in ("soon", "-", "+1", "-1y", "2026-13-01", "1" * 16, "٣"):
        with pytest.raises(InvalidValue, match="t must be"):
            Args(urlencode({"t": wrong})).moment_ms("t", NOW_MS)


def test_a_number_is_whole_and_has_a_limit() -> None:
    """A number may have commas, as the page writes it."""
    assert Args("n=1%2C000").number("n") == 1_000
    assert Args("").number("n", 7) == 7
    for wrong in ("-1", "1.5", "x", "²", "9" * 16, "2147483648"):
        with pytest.raises(InvalidValue, match="n must be"):
            Args(urlencode({"n": wrong})).number("n")


def test_a_word_is_one_of_those_that_are_known() -> None:
    """The first word is the default."""
    assert Args("").one_of("w", ("a", "b")) == "a"
    assert Args("action=fire").member("action", ScheduleAction) is ScheduleAction.FIRE
    with pytest.raises(InvalidValue, match="a or b"):
        Args("w=c").one_of("w", ("a", "b"))


def test_ids_come_back_as_they_were_and_once() -> None:
    """Whatever characters a producer has put into them."""
    ids = ["plain", "a b\r\n", "\x00<\ud800>", "%41", "plain"]
    encoded = urlencode([("ids", quote(each, safe="", errors="surrogatepass")) for each in ids])
    assert Args(encoded).quoted_ids("ids") == tuple(ids[:4])


def test_what_is_too_much_is_refused() -> None:
    """It is refused before it costs any work."""
    with pytest.raises(InvalidValue, match="form must be"):
        Args("&".join(["a=1"] * (FIELDS_MAX + 1)))
    with pytest.raises(InvalidValue, match="32767"):
        Args("a=" + "x" * 32_768).text("a")
    with pytest.raises(InvalidValue, match="must be given"):
        Args("a=+").required("a")


def test_what_is_no_utf8_is_replaced() -> None:
    """An address can hold any byte."""
    assert Args("a=%ff%fe").text("a") == "\ufffd\ufffd"

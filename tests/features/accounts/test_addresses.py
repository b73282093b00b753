"""RocketMQ's patterns of remote addresses: whom they mean, and what is refused."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqlite.kernel.config.addresses import NO_ADDRESS, parse_addresses

MEANT: list[tuple[str, list[str], list[str]]] = [
    ("", [], ["127.0.0.1", "::1", "", "unix"]),
    ("  ", [], ["127.0.0.1"]),
    ("*", ["127.0.0.1", "::1", "unix"], []),
    ("*.*.*.*", ["127.0.0.1", "::1"], []),
    ("*:*:*:*:*:*:*:*", ["127.0.0.1", "::1"], []),
    ("192.168.0.1", ["192.168.0.1", "::ffff:192.168.0.1"], ["192.168.0.11", "192.168.0.10"]),
    ("127.0.0.1,127.0.0.2,::1", ["127.0.0.1", "127.0.0.2", "::1"], ["127.0.0.3", "::2"]),
    ("127.0.0.{1,2,30}", ["127.0.0.1", "127.0.0.30"], ["127.0.0.3", "127.0.0.0"]),
    ("192.168.0.*", ["192.168.0.0", "192.168.0.255"], ["192.168.1.0", "192.1680.0.1"]),
    ("192.168.*.*", ["192.168.7.9"], ["192.169.7.9", "::1"]),
    ("192.100-150.*.*", ["192.100.0.1", "192.150.0.1"], ["192.99.0.1", "192.151.0.1"]),
    ("127.0.1-20.*", ["127.0.1.0", "127.0.20.255"], ["127.0.0.1", "127.0.21.1"]),
    ("127.0.0.1-200", ["127.0.0.1", "127.0.0.200"], ["127.0.0.0", "127.0.0.201"]),
    ("127.0.0-0.*", ["127.0.0.9"], ["127.0.1.9"]),
    # RocketMQ ignores what follows the first range; here it counts.
    ("192.168.100-200.10-20", ["192.168.150.15"], ["192.168.150.21", "192.168.99.15"]),
    ("192.168.*.7", ["192.168.1.7"], ["192.168.1.8"]),
    ("::1", ["::1", "0000:0000:0000:0000:0000:0000:0000:0001", "0:0::1"], ["::2", "127.0.0.1"]),
    ("FE80::A", ["fe80::a", "fe80::a%eth0"], ["fe80::b"]),
    ("::ffff:10.0.0.1", ["10.0.0.1"], ["10.0.0.2"]),
    ("1050::5:600:300c:{1,a}", ["1050:0:0:0:5:600:300c:1", "1050::5:600:300c:a"], ["1050::1"]),
    ("1050::5:600:300c:*", ["1050::5:600:300c:0", "1050::5:600:300c:ffff"], ["1050::5:600:3:1"]),
    (
        "1050::0005:0600:300c:1-200",
        ["1050::5:600:300c:1", "1050::5:600:300c:200"],
        ["1050::5:600:300c:0", "1050::5:600:300c:201"],
    ),
    (
        "1050::5:600:300c:1-200:*",
        ["1050::5:600:300c:1:0", "1050:0:0:5:600:300c:200:ffff"],
        ["1050::5:600:300c:201:0"],
    ),
    ("2001:db8:*", ["2001:db8::", "2001:db8:1:2:3:4:5:6"], ["2001:db9::", "2001:d:b8::"]),
    ("2001:db8:1-2", ["2001:db8:1:2:3:4:5:6"], ["2001:db8:3::"]),
    ("fe80::*", ["fe80::", "fe80::ffff"], ["fe80::1:0"]),
    ("::*", ["::1"], ["::1:1"]),
]
REFUSED = [
    *("256.0.0.1", "127.0.0", "127.0.0.1.1", "127.0.0.01", "::1ggg", "localhost", "10.0.0.0/8"),
    *("127.0.0.2-1", "127.0.0.-1-200", "127.0.0.0-256", "127.0.0.1-", "127.0.0.1-2-3", "127.0.*"),
    *("*.0.0.1", "*.*.*.5", "1-2.0.0.1", "127.0.0.**", "127.0.0.1*", "192.168.1.1-192.168.1.20"),
    *("127.0.0.1,2,3}", "{1,2}", "127.0.0.{}", "127.0.0.{1,,2}", "127.0.{1,2}", "1.2.{3.4}"),
    *(
        "127.0.0.{1,256}",
        "1.1.1.1,1.2.3.{1,2}",
        "127.0.0.{1,2",
        "127.0.0.1,",
        ",",
        "127.0.0.1, ::1",
    ),
    *("1.1.1.1,1.1.1.*", "*,1.1.1.1", "fe80::1%eth0", " 127.0.0.1", "127.0.0.1\n", "\u0661.0.0.1"),
    *("2::*:1", "2::1-2:3", "2::5-4", "2:1::2::*", "1:2:3:4:5:6:7:8:*", "2::-5", "2::1-10000"),
    *("1:2:3:4:5:6:7:8-9:*:*", ":*", "2::**", "1.2.3.4:*", "2::{}", "2:{1,g}", "-", "*-*"),
]


@pytest.mark.parametrize(("pattern", "meant", "others"), MEANT)
def test_a_pattern_means_these_addresses(pattern: str, meant: list[str], others: list[str]) -> None:
    """RocketMQ's forms, each with the addresses beside its borders."""
    compiled = parse_addresses(pattern)
    assert [each for each in meant if not compiled.matches(each)] == []
    assert [each for each in others if compiled.matches(each)] == []


@pytest.mark.parametrize("pattern", REFUSED)
def test_a_wrong_pattern_is_refused(pattern: str) -> None:
    """RocketMQ accepts some of them; then they mean more than they say, or fail at a request."""
    with pytest.raises(ValueError, match=r"address|upwards"):
        parse_addresses(pattern)


def test_only_a_pattern_for_everybody_says_so() -> None:
    """The operator is warned of it."""
    assert parse_addresses("*").is_all
    assert not parse_addresses("10.*.*.*").is_all
    assert parse_addresses(" ") is NO_ADDRESS


@given(st.text("0123456789abcdef.:*-{},%/ ", max_size=24), st.ip_addresses())
def test_any_text_is_a_pattern_or_refused(
    text: str, address: ipaddress.IPv4Address | ipaddress.IPv6Address
) -> None:
    """A compiled pattern answers for every address."""
    try:
        compiled = parse_addresses(text)
    except ValueError:
        return
    assert compiled.matches(str(address)) in (True, False)


@given(st.ip_addresses())
def test_an_address_means_itself(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    """In short and in long form."""
    assert parse_addresses(str(address)).matches(address.exploded)

"""The address guard: the whole corpus, every spelling, and what resolvers may say."""

from __future__ import annotations

import ipaddress
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yardkit.addresses import (
    AddressFault,
    AddressVerdict,
    check_address,
    check_resolved,
    is_blocked_ip,
    parse_networks,
)

CORPUS = json.loads((Path(__file__).parents[1] / "data/corpus/addresses.json").read_text())
PUBLIC = "93.184.216.34"


def never_asked(name: str) -> list[str]:
    raise AssertionError(f"asked for {name}")


@pytest.mark.parametrize("host", sorted(set(CORPUS["blocked"])))
def test_the_corpus_is_blocked(host: str) -> None:
    verdict = check_address(host, resolve=never_asked)
    assert not verdict.accepted
    assert verdict.reason
    assert verdict.addresses == []


@pytest.mark.parametrize("host", CORPUS["allowed"])
def test_the_corpus_is_allowed(host: str) -> None:
    assert check_address(host, resolve=never_asked) == AddressVerdict(True, "", [host])


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        ("2130706433", "loopback"),
        ("127.1", "loopback"),
        ("0177.0.0.1", "loopback"),
        ("0x7f.0x0.0x0.0x1", "loopback"),
        ("0X7F000001", "loopback"),
        ("127.0.0.1.", "loopback"),
        ("[::1]", "loopback"),
        ("[::FFFF:127.0.0.1]", "loopback"),
        ("[::]", "unspecified address"),
        ("0:0:0:0:0:0:0:1", "loopback"),
        ("１２７.０.０.１", "loopback"),
        ("①②⑦.⓪.⓪.①", "loopback"),
        ("127。0。0。1", "loopback"),
        ("LOCALHOST", "loopback"),
        ("localhost.", "loopback"),
        ("a.b.localhost", "loopback"),
        ("0xA9FEA9FE", "cloud metadata service"),
        ("168.63.129.16", "cloud metadata service"),
        ("100.100.100.200", "cloud metadata service"),
        ("::ffff:169.254.169.254", "cloud metadata service"),
        ("64:ff9b::a9fe:a9fe", "NAT64 of 169.254.169.254: cloud metadata service"),
        ("64:ff9b:1::1", "local NAT64"),
        ("2002:a00:1::1", "6to4 of 10.0.0.1: private network"),
        ("2001:0:808:808::80ff:fffe", "Teredo of 127.0.0.1: loopback"),
        ("2001:4860::5efe:10.0.0.1", "ISATAP of 10.0.0.1: private network"),
        ("::127.0.0.1", "IPv4-compatible address"),
        ("fec0::1", "site-local"),
        ("2001:db8::1", "documentation"),
        ("3fff::1", "documentation"),
        ("4000::1", "outside the global unicast range"),
        ("[fe80::1%25eth0]", "address of one network interface"),
        ("2606:4700::1111%1", "address of one network interface"),
        ("255.255.255.255", "broadcast"),
        ("256.1.1.1", "no IPv4 address"),
        ("1.2.3.4.5", "no IPv4 address"),
        ("1.2.3.999", "no IPv4 address"),
        ("4294967296", "no IPv4 address"),
        ("08.8.8.8", "no IPv4 address"),
        ("1_0.1.1.1", "no IPv4 address"),
        ("+8.8.8.8", "no IPv4 address"),
        ("example.0x7f", "no IPv4 address"),
        ("1::2::3", "no IPv6 address"),
        ("example.com:80", "no IPv6 address"),
        ("", "empty host"),
        ("  ", "empty host"),
        (".", "empty label in the host"),
        ("..", "empty label in the host"),
        ("a..b", "empty label in the host"),
        ("[::1", "bad brackets"),
        ("[]", "bad brackets"),
        ("[127.0.0.1]", "bad brackets"),
        ("a\0b", "control character or blank in the host"),
        ("127.0.0.1\n", "control character or blank in the host"),
        ("a b", "control character or blank in the host"),
        ("x" * 64 + ".com", "'" + "x" * 63 + "' is no part of a host name"),
        ("a." * 200 + "com", "host too long"),
        ("x" * 5000, "host too long"),
        ("%31.example", "'%31' is no part of a host name"),
        ("user@example.com", "'user@example' is no part of a host name"),
        ("exa/mple.com", "'exa/mple' is no part of a host name"),
        ("-a.example", "'-a' is no part of a host name"),
        ("xn--\u00fc.example", "no valid international name"),
    ],
)
def test_every_spelling(host: str, reason: str) -> None:
    verdict = check_address(host, resolve=never_asked)
    assert (verdict.accepted, verdict.reason, verdict.addresses) == (False, reason, [])


def test_nat64_of_a_public_address_passes() -> None:
    assert check_address("64:ff9b::5db8:d822").accepted


def test_names_are_judged_by_all_their_addresses() -> None:
    mixed = check_address("mixed.example", resolve=lambda _: [PUBLIC, "10.0.0.1"])
    assert mixed == AddressVerdict(
        False, "mixed.example is 10.0.0.1: private network", [], AddressFault.BLOCKED
    )
    both = check_address("good.example.", resolve=lambda _: [PUBLIC, "2606:4700:4700::1111"])
    assert both == AddressVerdict(True, "", [PUBLIC, "2606:4700:4700::1111"])


def test_international_names_are_asked_for_in_ascii() -> None:
    asked: list[str] = []

    def resolve(name: str) -> list[str]:
        asked.append(name)
        return [PUBLIC]

    assert check_address("Bücher.example", resolve=resolve).accepted
    assert check_address("例子.example", resolve=resolve).accepted
    assert asked == ["xn--bcher-kva.example", "xn--fsqu00a.example"]


@pytest.mark.parametrize("error", [OSError("no"), UnicodeError("label too long")])
def test_a_name_without_address_is_refused_as_such(error: Exception) -> None:
    def resolve(name: str) -> list[str]:
        raise error

    verdict = check_address("nowhere.invalid", resolve=resolve)
    assert verdict == AddressVerdict(
        False, "nowhere.invalid cannot be resolved", [], AddressFault.UNRESOLVED
    )
    assert check_address("nowhere.invalid", resolve=lambda _: []) == verdict


def test_the_systems_resolver_is_the_default() -> None:
    assert check_address("nowhere.invalid").reason == "nowhere.invalid cannot be resolved"


def test_opened_networks() -> None:
    loopback = ["127.0.0.0/8"]
    assert check_address("127.0.0.1", allowed_networks=loopback).accepted
    assert check_address("0x7f000001", allowed_networks=loopback).addresses == ["127.0.0.1"]
    assert check_address("::ffff:127.0.0.1", allowed_networks=loopback).accepted
    assert not check_address("10.0.0.1", allowed_networks=loopback).accepted
    assert not check_address("64:ff9b::7f00:1", allowed_networks=loopback).accepted
    assert not check_address("::1", allowed_networks=loopback).accepted
    assert not check_address("fe80::1%lo", allowed_networks=["fe80::/10"]).accepted
    inside = check_address(
        "inside.example", allowed_networks=["10.1.0.0/16"], resolve=lambda _: ["10.1.2.3"]
    )
    assert inside == AddressVerdict(True, "", ["10.1.2.3"])


def test_localhost_means_the_family_that_was_opened() -> None:
    verdict = check_address("localhost", allowed_networks=["127.0.0.0/8"])
    assert verdict == AddressVerdict(True, "", ["127.0.0.1"])
    assert check_resolved("localhost", ["::1", "127.0.0.1"], ["::1/128"]).addresses == ["::1"]
    # Somebody's hosts file must not turn the word into a way in or out.
    assert not check_address("localhost", resolve=lambda _: [PUBLIC]).accepted


def test_a_network_that_is_none_is_named() -> None:
    with pytest.raises(ValueError, match=r"'10\.0\.0\.0/99' is no network"):
        parse_networks(["127.0.0.0/8", "10.0.0.0/99"])
    with pytest.raises(ValueError, match="no network"):
        check_address("8.8.8.8", allowed_networks=["nonsense"])


def test_what_a_socket_connects_to() -> None:
    assert is_blocked_ip("127.0.0.1") == "loopback"
    assert is_blocked_ip("127.0.0.1", ("127.0.0.0/8",)) is None
    assert is_blocked_ip(ipaddress.ip_address(PUBLIC)) is None
    assert is_blocked_ip("nonsense") == "no IP address"


@given(st.integers(0, 2**32 - 1))
def test_no_address_that_is_not_global_passes_v4(value: int) -> None:
    address = ipaddress.IPv4Address(value)
    if not address.is_global or address.is_multicast or address.is_reserved:
        assert is_blocked_ip(address) is not None


@pytest.mark.slow("3 s")
@given(st.integers(0, 2**128 - 1))
def test_no_address_that_is_not_global_passes_v6(value: int) -> None:
    address = ipaddress.IPv6Address(value)
    stands_for_another = address.ipv4_mapped or address in ipaddress.ip_network("64:ff9b::/96")
    if not stands_for_another and (
        not address.is_global or address.is_multicast or address.is_reserved
    ):
        assert is_blocked_ip(address) is not None


@given(st.integers(0, 2**32 - 1))
def test_embedding_hides_nothing(value: int) -> None:
    inner = ipaddress.IPv4Address(value)
    blocked = is_blocked_ip(inner)
    mapped = ipaddress.IPv6Address(0xFFFF << 32 | value)
    nat64 = ipaddress.IPv6Address((0x0064_FF9B << 96) | value)
    assert is_blocked_ip(mapped) == blocked
    assert (is_blocked_ip(nat64) is None) == (blocked is None)


@given(st.text(max_size=300))
def test_no_text_breaks_it(host: str) -> None:
    verdict = check_address(host, resolve=lambda _: [])
    assert verdict.accepted == (not verdict.reason) == (not verdict.problem)

# SPDX-License-Identifier: Apache-2.0
"""The domain's XML, as Nova writes it, and as an attacker might."""

import uuid
from xml.sax.saxutils import escape, quoteattr

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vcache_agent import domain_xml
from vcache_agent.domain_xml import DomainXmlError, parse
from vcache_agent.model import Backing, DiskSource

NOVA = "http://openstack.org/xmlns/libvirt/nova/1.1"
UUID = "11111111-2222-4333-8444-555555555555"


def document(specs: str = "", disks: str = "", name: str = "instance-1", uuid: str = UUID) -> bytes:
    return (f'<domain type="kvm" id="3"><name>{name}</name><uuid>{uuid}</uuid>'
            f'<metadata><nova:instance xmlns:nova="{NOVA}"><nova:flavor name="f" id="x">'
            f'<nova:extraSpecs>{specs}</nova:extraSpecs></nova:flavor></nova:instance></metadata>'
            f'<devices>{disks}</devices></domain>').encode()


def test_the_project_is_the_owners() -> None:
    assert parse(document()).project == ""
    owner = '<nova:owner><nova:user uuid="u">n</nova:user><nova:project uuid="p1">n'
    text = document().replace(b"<nova:flavor", f"{owner}</nova:project></nova:owner>".encode()
                              + b"<nova:flavor", 1)
    assert parse(text).project == "p1"


def test_what_nova_writes() -> None:
    domain = parse(document(
        '<nova:extraSpec name="vcache:mode">flush-only</nova:extraSpec>'
        '<nova:extraSpec name="hw:cpu">&lt;x&gt;</nova:extraSpec>',
        '<disk type="file" device="disk"><driver name="qemu" type="qcow2" cache="none"/>'
        '<source file="/var/lib/nova/instances/u/disk" index="1"/>'
        '<backingStore type="file"><format type="raw"/><source file="/base"/></backingStore>'
        '<target dev="vda" bus="virtio"/></disk>'
        '<disk type="block" device="disk"><source dev="/dev/vg/lv"/><target dev="vdb"/></disk>'
        '<disk type="network" device="disk"><source protocol="rbd" name="a/b"/>'
        '<target dev="vdc"/></disk>'
        '<disk type="file" device="cdrom"><source file="/config.iso"/><target dev="sda"/>'
        '<readonly/></disk>'
        '<disk type="file" device="cdrom"><target dev="sdb"/></disk>'
        '<disk type="file"><source file="relative"/><target dev="vdd"/></disk>'))
    assert (domain.uuid, domain.name) == (UUID, "instance-1")
    assert domain.extra_specs == {"vcache:mode": "flush-only", "hw:cpu": "<x>"}
    assert domain.disks == (
        DiskSource("vda", "file", "/var/lib/nova/instances/u/disk",
                   backing=(Backing("file", "/base"),), chain_known=False),
        DiskSource("vdb", "block", "/dev/vg/lv", chain_known=False),
        DiskSource("vdc", "network", None, chain_known=False),
        DiskSource("sda", "file", "/config.iso", readonly=True, chain_known=False),
        DiskSource("sdb", "file", None, readonly=True, chain_known=False),
        DiskSource("vdd", "file", None, chain_known=False))


def chain(*layers: str) -> str:
    """Return the elements of a chain as libvirt writes it, with its empty end."""
    text = "<backingStore/>"
    for layer in reversed(layers):
        text = f'<backingStore {layer}<format type="qcow2"/>{text}</backingStore>'
    return text


def test_the_layers_below_a_disk_are_in_order() -> None:
    (disk,) = parse(document(disks=(
        '<disk type="file"><source file="/top"/>' + chain(
            'type="file" index="2"><source file="/snap 1"/>',
            'type="block"><source dev="/dev/vg/lv"/>',
            'type="network"><source protocol="rbd" name="a/b"/>',
            'type="file"><source file="relative"/>')
        + '<mirror type="file" job="copy"><source file="/copy"/></mirror>'
        '<target dev="vda"/></disk>'))).disks
    assert (disk.path, disk.deeper, disk.chain_known) == ("/top", 0, True)
    assert disk.backing == (Backing("file", "/snap 1"), Backing("block", "/dev/vg/lv"),
                            Backing("network", None), Backing("file", None))


@pytest.mark.parametrize("length", [0, 1, 64, 65, 200])
def test_a_chain_as_long_as_libvirt_allows_is_cut_and_not_refused(length: int) -> None:
    (disk,) = parse(document(disks=(
        '<disk type="file"><source file="/top"/>'
        + chain(*(f'type="file"><source file="/{n}"/>' for n in range(length)))
        + '<target dev="vda"/></disk>'))).disks
    assert [layer.path for layer in disk.backing] == [f"/{n}" for n in range(min(length, 64))]
    assert disk.deeper == max(0, length - 64)


@pytest.mark.parametrize(("xml", "words"), [
    (b"", "no element"), (b"<domain>", "no element"), (b"<network/>", "root element"),
    (document(name=""), "name is missing"), (document(uuid="x"), "not a UUID"),
    (document(name="../../etc"), "no slash"), (document(name="x" * 256), "at most 255"),
    (b"\xff\xfe\x00", "domain XML"), (b'<?xml version="1.0" encoding="none"?><a/>', "domain XML"),
    (b"<a>" * 300, "levels"),
    (b"<domain>" + b"<a/>" * 60_000 + b"</domain>", "elements"),
    (b" " * (domain_xml.MAX_BYTES + 1), "at most"),
    (b'<!DOCTYPE domain SYSTEM "file:///etc/passwd"><domain/>', "document type"),
    (b'<!DOCTYPE d [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><domain>&b;</domain>',
     "document type"),
    (b"<domain>&undefined;</domain>", "undefined entity"),
])
def test_what_is_refused_says_why(xml: bytes, words: str) -> None:
    with pytest.raises(DomainXmlError, match=words):
        parse(xml)


def test_specs_elsewhere_do_not_count() -> None:
    spec = f'<n:extraSpec xmlns:n="{NOVA}" name="vcache:mode">writeback</n:extraSpec>'
    assert parse(document().replace(b"<devices>", f"{spec}<devices>".encode())).extra_specs == {}
    assert parse(document(spec.replace(NOVA, "http://example.org"))).extra_specs == {}


TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"],
                             exclude_characters="\ufffe\uffff"), max_size=40)


@given(st.dictionaries(TEXT.filter(bool), TEXT, max_size=5))
def test_any_spec_comes_through_unchanged(specs: dict[str, str]) -> None:
    text = "".join(f"<nova:extraSpec name={quoteattr(key)}>{escape(value)}</nova:extraSpec>"
                   for key, value in specs.items())
    assert parse(document(text)).extra_specs == {
        key: value.strip() for key, value in specs.items()}


SEED = document('<nova:extraSpec name="vcache:mode">flush-only</nova:extraSpec>',
                '<disk type="file"><source file="/x"/><target dev="vda"/></disk>')


@settings(max_examples=300)
@given(st.lists(st.tuples(st.integers(0, len(SEED) - 1), st.binary(max_size=12)), max_size=6),
       st.integers(0, len(SEED)))
def test_a_damaged_document_is_read_or_refused(
        edits: list[tuple[int, bytes]], length: int) -> None:
    data = bytearray(SEED)
    for place, text in edits:
        data[place:place + len(text)] = text
    try:
        domain = parse(bytes(data[:length]) if length % 3 == 0 else bytes(data))
    except DomainXmlError as error:
        assert str(error)
    else:
        assert domain.uuid and domain.name and "/" not in domain.name
        assert all(disk.path is None or disk.path.startswith("/") for disk in domain.disks)


@given(st.binary(max_size=2000))
def test_any_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(DomainXmlError):
        parse(data)


@pytest.mark.parametrize(("serial", "volume"), [
    ("<serial>6f0e1a52-3f6c-4bd1-9c86-0d6d7a2a2f11</serial>", True),
    ("<serial> 6f0e1a52-3f6c-4bd1-9c86-0d6d7a2a2f11\n</serial>", True), ("", False),
    ("<serial/>", False), ("<serial>WD-1234</serial>", False)])
def test_an_attached_volume_has_its_id_as_serial(serial: str, volume: bool) -> None:
    found = domain_xml.parse(f"""<domain><name>a</name><uuid>{uuid.UUID(int=1)}</uuid><devices>
        <disk type="block"><source dev="/dev/sdc"/><target dev="vdb"/>{serial}</disk>
        </devices></domain>""".encode())
    assert [disk.volume for disk in found.disks] == [volume]


@pytest.mark.parametrize(("element", "shareable"), [("<shareable/>", True), ("", False)])
def test_a_disk_that_several_domains_may_write(element: str, shareable: bool) -> None:
    (disk,) = parse(document(disks=(
        f'<disk type="block"><source dev="/dev/sdc"/><target dev="vdb"/>{element}</disk>'))).disks
    assert disk.shareable is shareable

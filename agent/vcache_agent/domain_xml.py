# SPDX-License-Identifier: Apache-2.0
"""Parse the parts of a libvirt domain's XML that the agent needs.

The XML is limited in size, depth and number of elements. A document type is
rejected, so there are no entities to expand and no external files to load.
"""

import uuid
from collections.abc import Iterator
from xml.etree import ElementTree
from xml.parsers import expat

from vcache_agent.model import Backing, DiskSource, Domain

#: Largest XML in bytes; the hook has the same limit.
MAX_BYTES = 4 << 20
# libvirt limits a chain to 200 layers (VIR_STORAGE_MAX_CHAIN_DEPTH); each is one level deeper.
_MAX_DEPTH = 256
_MAX_ELEMENTS = 50_000
_MAX_NAME = 255
#: Most layers of one disk below its active one; layers below these get no tag.
MAX_BACKING = 64

# Elements with the flavor, which nova-compute writes since nova 32, with namespaces.
_NOVA = "{http://openstack.org/xmlns/libvirt/nova/1.1}"
_PROJECT = f"metadata/{_NOVA}instance/{_NOVA}owner/{_NOVA}project"
_EXTRA_SPECS = f"metadata/{_NOVA}instance/{_NOVA}flavor/{_NOVA}extraSpecs/{_NOVA}extraSpec"

#: Name of the virtio-serial port for elastic SSDs.
CHANNEL = "org.nova-vcache.vssd"
# Longest serial number that is kept: that of a Cinder volume has 36 characters.
_MAX_SERIAL = 64

# Attribute of <source> with the host path, by the type of the disk.
_PATH_ATTRIBUTES = {"file": "file", "block": "dev"}


class DomainXmlError(ValueError):
    """The XML does not describe a domain, or exceeds a limit."""


def parse(xml: bytes) -> Domain:
    """Return the domain that the XML describes.

    :raises DomainXmlError: if it is invalid; the text says why
    """
    root = _tree(xml)
    if root.tag != "domain":
        raise DomainXmlError(f"domain XML: the root element is {root.tag[:80]!r}, "
                             "must be 'domain'")
    name = _text(root, "name")
    if len(name) > _MAX_NAME or "/" in name or "\0" in name:
        raise DomainXmlError(f"domain XML: name {name[:80]!r} must have at most {_MAX_NAME} "
                             "characters and no slash")
    text = _text(root, "uuid")
    try:
        identity = str(uuid.UUID(text))
    except ValueError:
        raise DomainXmlError(f"domain XML: uuid {text[:80]!r} is not a UUID") from None
    return Domain(identity, name, dict(_extra_specs(root)), tuple(_disks(root)), _project(root),
                  channel=_channel(root))


def _tree(xml: bytes) -> ElementTree.Element:
    if len(xml) > MAX_BYTES:
        raise DomainXmlError(f"domain XML: has {len(xml)} bytes, must have at most {MAX_BYTES}")
    builder = ElementTree.TreeBuilder()
    # With "}" as separator the names are those of ElementTree without the leading "{".
    parser = expat.ParserCreate(namespace_separator="}")
    parser.buffer_text = True
    depth = elements = 0

    def fixed(name: str) -> str:
        return "{" + name if "}" in name else name

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal depth, elements
        depth += 1
        elements += 1
        if depth > _MAX_DEPTH or elements > _MAX_ELEMENTS:
            raise DomainXmlError(f"domain XML: must have at most {_MAX_ELEMENTS} elements and "
                                 f"{_MAX_DEPTH} levels")
        builder.start(fixed(name), {fixed(key): value for key, value in attributes.items()})

    def end(name: str) -> None:
        nonlocal depth
        depth -= 1
        builder.end(fixed(name))

    def doctype(*_: object) -> None:
        raise DomainXmlError("domain XML: a document type is not allowed")

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = builder.data
    parser.StartDoctypeDeclHandler = doctype
    try:
        parser.Parse(xml, True)
    except expat.ExpatError as error:
        raise DomainXmlError(f"domain XML: {error}") from None
    except (LookupError, ValueError) as error:  # an unknown or unusable encoding
        if isinstance(error, DomainXmlError):
            raise
        raise DomainXmlError(f"domain XML: {error}") from None
    return builder.close()


def _text(root: ElementTree.Element, tag: str) -> str:
    text = (root.findtext(tag) or "").strip()
    if not text:
        raise DomainXmlError(f"domain XML: {tag} is missing or empty")
    return text


def _project(root: ElementTree.Element) -> str:
    element = root.find(_PROJECT)
    return "" if element is None else element.get("uuid", "")[:_MAX_NAME]


def _extra_specs(root: ElementTree.Element) -> Iterator[tuple[str, str]]:
    for element in root.iterfind(_EXTRA_SPECS):
        name = element.get("name")
        if name:
            yield name, (element.text or "").strip()


def _channel(root: ElementTree.Element) -> str:
    """Return the socket of the channel for elastic SSDs; empty: there is none.

    libvirt chooses its path when the domain starts.
    """
    for channel in root.iterfind("devices/channel[@type='unix']"):
        target, source = channel.find("target"), channel.find("source")
        if target is not None and target.get("name") == CHANNEL and source is not None \
                and source.get("mode") == "bind":
            return source.get("path", "")
    return ""


def _disks(root: ElementTree.Element) -> Iterator[DiskSource]:
    for disk in root.iterfind("devices/disk"):
        target = disk.find("target")
        name = target.get("dev", "") if target is not None else ""
        if not name:
            continue
        kind, path = _place(disk)
        # CD-ROM and floppy drives get no tag, even if they are writable.
        readonly = (disk.find("readonly") is not None
                    or disk.get("device", "disk") not in ("disk", "lun"))
        backing, complete = _backing(disk)
        yield DiskSource(name, kind, path, readonly, backing[:MAX_BACKING],
                         len(backing[MAX_BACKING:]), complete, _is_volume(disk),
                         disk.find("shareable") is not None,
                         (disk.findtext("serial") or "").strip()[:_MAX_SERIAL])


def _is_volume(disk: ElementTree.Element) -> bool:
    """Return True if Nova has attached a volume as a disk: then its serial is the volume's id.

    Nova's own disks have no serial.
    """
    try:
        uuid.UUID((disk.findtext("serial") or "").strip())
    except ValueError:
        return False
    return True


def _place(element: ElementTree.Element) -> tuple[str, str | None]:
    """Return the type and the host path of a <disk> or a <backingStore>."""
    kind = element.get("type", "")
    source = element.find("source")
    attribute = _PATH_ATTRIBUTES.get(kind)
    path = source.get(attribute) if source is not None and attribute else None
    if path is not None and (not path.startswith("/") or "\0" in path):
        path = None
    return kind, path


def _backing(disk: ElementTree.Element) -> tuple[tuple[Backing, ...], bool]:
    """Return the layers below a disk's active one, from the top, and whether these are all.

    The chain ends with an empty element. Before QEMU has opened the disk, the chain in the
    XML may be missing or end early.
    """
    found = []
    element = disk.find("backingStore")
    while element is not None and (element.get("type") or element.find("source") is not None):
        found.append(Backing(*_place(element)))
        element = element.find("backingStore")
    return tuple(found), element is not None

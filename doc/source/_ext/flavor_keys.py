# SPDX-License-Identifier: Apache-2.0
"""The directive ``flavor-keys``: a table of the schema of ``vcache:*``.

The table is made from nova_vcache.extra_specs while the documentation is
built, so that the two cannot disagree.
"""

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.typing import ExtensionMetadata

from nova_vcache import extra_specs


def _default(key: extra_specs.Key) -> str:
    """Return the default as it would stand in a flavor."""
    if key.default is None:
        return "absent"
    if isinstance(key.default, bool):
        return f"``{str(key.default).lower()}``"
    return f"``{key.default}``"


def _allowed(key: extra_specs.Key) -> str:
    if key.choices is not None:
        return ", ".join(f"``{choice}``" for choice in key.choices)
    return key.allowed


class FlavorKeys(Directive):
    """Put a list-table of all keys in the page."""

    def run(self) -> list[nodes.Node]:
        """Return the table's nodes."""
        lines = [".. list-table::", "   :header-rows: 1", "   :widths: 22 28 14 36", ""]
        rows = [["key", "allowed", "default", "meaning"]]
        rows += [
            [f"``{key.key}``", _allowed(key), _default(key), key.doc] for key in extra_specs.KEYS]
        for row in rows:
            lines += [
                ("   * - " if index == 0 else "     - ") + cell for index, cell in enumerate(row)]
        box = nodes.container()
        source = str(extra_specs.__file__)
        self.state.document.settings.record_dependencies.add(source)
        self.state.nested_parse(StringList(lines, source=source), self.content_offset, box)
        return list(box.children)


def setup(app: Sphinx) -> ExtensionMetadata:
    """Register the directive with Sphinx."""
    app.add_directive("flavor-keys", FlavorKeys)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}

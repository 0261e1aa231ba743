# SPDX-License-Identifier: Apache-2.0
"""The directive ``metrics-table``: all metrics of the agent, from their definitions."""

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.typing import ExtensionMetadata

from vcache_agent.metrics import definitions


class MetricsTable(Directive):
    """Put a table of each group of metrics in the page."""

    def run(self) -> list[nodes.Node]:
        """Return the nodes."""
        lines: list[str] = []
        for title, labels, metrics in definitions.GROUPS:
            shown = ", ".join(f"``{label}``" for label in labels)
            lines += [f"**{title}**" + (f", with the labels {shown}:" if labels else ":"), "",
                      ".. list-table::", "   :header-rows: 1", "   :widths: 46 12 42", "",
                      "   * - metric", "     - type", "     - meaning"]
            for metric in metrics:
                more = ", ".join(f"``{label}``" for label in metric.labels)
                lines += [f"   * - ``{metric.name}``", f"     - {metric.kind}",
                          f"     - {metric.help}" + (f" Further labels: {more}." if more else "")]
            lines.append("")
        box = nodes.container()
        source = str(definitions.__file__)
        self.state.document.settings.record_dependencies.add(source)
        self.state.nested_parse(StringList(lines, source=source), self.content_offset, box)
        return list(box.children)


def setup(app: Sphinx) -> ExtensionMetadata:
    """Register the directive with Sphinx."""
    app.add_directive("metrics-table", MetricsTable)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}

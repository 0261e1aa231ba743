# SPDX-License-Identifier: Apache-2.0
"""The directive ``config-options``: the agent's options, from their definition."""

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList
from oslo_config import cfg
from sphinx.application import Sphinx
from sphinx.util.typing import ExtensionMetadata

from vcache_agent import conf


def _range(option: cfg.Opt) -> str:
    low, high = getattr(option.type, "min", None), getattr(option.type, "max", None)
    if low is not None and high is not None:
        return f" ({low:g} to {high:g})"
    return f" (at least {low:g})" if low is not None else ""


def _default(option: cfg.Opt) -> str:
    return "(empty)" if option.default == "" else f"``{option.default}``"


class ConfigOptions(Directive):
    """Put a definition list of all options in the page."""

    def run(self) -> list[nodes.Node]:
        """Return the nodes."""
        lines: list[str] = []
        for group, options in conf.list_opts():
            lines += [f"``[{group.name}]``: {group.title}", ""]
            for option in options:
                lines += [
                    f"   ``{option.name}`` = {_default(option)}{_range(option)}",
                    f"      {option.help}", ""]
        box = nodes.container()
        source = str(conf.__file__)
        self.state.document.settings.record_dependencies.add(source)
        self.state.nested_parse(StringList(lines, source=source), self.content_offset, box)
        return list(box.children)


def setup(app: Sphinx) -> ExtensionMetadata:
    """Register the directive with Sphinx."""
    app.add_directive("config-options", ConfigOptions)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}

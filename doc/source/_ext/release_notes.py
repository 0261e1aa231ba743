# SPDX-License-Identifier: Apache-2.0
"""The directive release-notes: reno's, that can do without git, as in an unpacked archive."""

from docutils import nodes
from dulwich.errors import NotGitRepository
from reno import sphinxext
from sphinx.application import Sphinx
from sphinx.util.typing import ExtensionMetadata


class ReleaseNotes(sphinxext.ReleaseNotesDirective):
    """Reno's directive."""

    def run(self) -> list[nodes.Node]:
        """Return the notes; what a version has, git knows."""
        try:
            found: list[nodes.Node] = super().run()
        except NotGitRepository:
            return [nodes.paragraph(
                text="The notes are in releasenotes/notes; this was built without git, which "
                     "knows what belongs to which version.")]
        return found


def setup(app: Sphinx) -> ExtensionMetadata:
    """Register the directive with Sphinx."""
    app.add_directive("release-notes", ReleaseNotes)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}

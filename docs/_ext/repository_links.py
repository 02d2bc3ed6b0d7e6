"""Links into the repository, outside of the pages: the site has no copy of those files.

On a code host they lead somewhere.  In the site the text is left, which names the path.
"""

from pathlib import Path

from sphinx.addnodes import pending_xref
from sphinx.transforms.post_transforms import SphinxPostTransform

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs"


class WithoutLink(SphinxPostTransform):
    """Leaves the text of each link to what lies in the repository beside the pages."""

    default_priority = 8  # MyST resolves links at 9

    def run(self, **kwargs):
        """Replaces them."""
        folder = Path(self.env.doc2path(self.env.docname)).parent
        for node in list(self.document.findall(pending_xref)):
            path = Path(folder / node["reftarget"].partition("#")[0]).resolve()
            is_there = path.exists() or path.with_suffix(".md").exists()
            is_beside = path.is_relative_to(ROOT) and not path.is_relative_to(PAGES)
            if is_there and is_beside:
                node.replace_self(node[0])


def setup(app):
    """Registers the transform."""
    app.add_post_transform(WithoutLink)
    return {"parallel_read_safe": True}

"""The site: `nox -s docs` builds it from these pages, without a framework."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "attnref"
author = "the attnref authors"
html_title = "attnref"

extensions = [
    "myst_parser",
    "sphinx_design",
    "sphinx_copybutton",
    "formulas_as_mathml",
    "repository_links",
    "rooms_side_by_side",
    "evidence",
    "drawings",
    "tradeoff",
    "explorer",
    "weight_layouts",
    "api",
]
exclude_patterns = ["_ext", "_static"]
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist", "attrs_inline"]
myst_heading_anchors = 3
sd_fontawesome_latex = False

html_theme = "pydata_sphinx_theme"
html_math_renderer = "mathml"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": "attnref"},
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": [],
    "footer_end": [],
    "show_prev_next": True,
    "header_links_before_dropdown": 8,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_sidebars = {
    page: []
    for page in ("index", "mistakes", "questions", "weights", "explorer", "design")
}
copybutton_prompt_text = ">>> |$ "
copybutton_prompt_is_regexp = True

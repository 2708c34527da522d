"""How the site is built: ``make site`` (Sphinx) writes it into ``build/site``.

Pages are README, the folder docs and the notebooks with their stored outputs, which
are never run. Nothing is fetched, neither to build the pages nor to read them.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs" / "_ext")]

project = "fltnb"
author = "The fltnb authors"
project_copyright = author

# from formulas on: extensions of our own, in docs/_ext
extensions = [
    "myst_nb",
    "sphinx_copybutton",
    "formulas",
    "pages",
    "api",
    "measured",
    "terms",
    "gallery",
]
root_doc = "README"
include_patterns = ["*.md", "docs/**", "notebooks/[0-9]*.ipynb"]
exclude_patterns = ["docs/_*", "docs/toc.md"]

nb_execution_mode = "off"
nb_ipywidgets_js = {}  # else every page loads two scripts from the network
nb_code_prompt_show = "Code"
nb_code_prompt_hide = "Code"
myst_enable_extensions = ["dollarmath", "html_image"]
myst_heading_anchors = 4
html_math_renderer = "mathml"

html_theme = "furo"
html_title = "fltnb"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_search_scorer = str(ROOT / "docs" / "_ext" / "scorer.js")
html_show_sphinx = False
copybutton_prompt_text = ">>> "

# options are told in a table of words, not in the signature
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
python_display_short_literal_types = True
add_module_names = False
toc_object_entries_show_parents = "hide"

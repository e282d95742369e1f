"""The documentation site: `make docs` builds it. Nothing is fetched, neither while building nor while reading."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

from sphinx.util.inspect import TypeAliasForwardRef

import suffice

# In list[Array] Sphinx would show its own class.
TypeAliasForwardRef.__repr__ = lambda alias: alias.name.removeprefix("npt.")

project = "suffice"
author = "the suffice developers"
copyright = author
version = release = suffice.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "mathml", "plain_docstrings", "result_files"]
exclude_patterns = ["_extensions"]
myst_enable_extensions = ["dollarmath", "amsmath", "deflist"]
myst_heading_anchors = 3
myst_dmath_double_inline = True

html_theme = "furo"
html_title = "suffice"
html_math_renderer = "mathml"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
pygments_style, pygments_dark_style = "friendly", "monokai"

autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
autodoc_type_aliases = {name: name for name in ("Array", "Pixels", "Indices", "Data", "npt.ArrayLike", "JournalLike")}
python_use_unqualified_type_names = True
python_display_short_literal_types = True
maximum_signature_line_length = 88
add_module_names = False

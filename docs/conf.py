"""How Sphinx builds the site: ``make docs`` writes ``docs/_build/html``, offline, with no warning left over."""

import inspect
import logging
import re
import sys
import warnings
from importlib import import_module
from pathlib import Path

import fenchel

sys.path.insert(0, str(Path(__file__).parent))
import_module("generated_pages").write()  # the pages that are made from the source
import_module("page_pictures").draw(Path(__file__).parent)

project = "fenchel"
author = "The fenchel developers"
copyright = "the fenchel developers"
version = release = fenchel.__version__

extensions = [
    "myst_parser",
    "sphinx_gallery.gen_gallery",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx-mathjax-offline",
    "sphinx.ext.mathjax",
]
templates_path = ["_templates"]
exclude_patterns = ["_build"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
nitpicky = True
# words of numpydoc's types ("array of shape (n,)", "default 0.95") are prose and not links
nitpick_ignore_regex = [("py:.*", ".*")]
suppress_warnings = ["config.cache"]

myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
autosummary_generate = True
autodoc_typehints = "none"
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_xref_param_type = False
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

sphinx_gallery_conf = {  # each script is run while the site is built, and an error ends the build
    "examples_dirs": "../examples/case_studies",
    "gallery_dirs": "case_studies",
    "filename_pattern": r"\.py$",
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "capture_repr": (),
    "download_all_examples": False,
    "show_signature": False,
    "write_computation_times": False,
    "min_reported_time": 1e9,
    "copyfile_regex": r".*peers\.json",
}

# what a page prints holds no path of the machine that builds it
warnings.formatwarning = lambda message, category, *where: f"{category.__name__}: {message}\n"
logging.getLogger("fenchel").setLevel(logging.ERROR)  # where compiled loops are kept

html_theme = "pydata_sphinx_theme"
html_title = "fenchel"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = html_show_sourcelink = False
html_theme_options = {
    "navbar_align": "left",
    "show_prev_next": True,
    "header_links_before_dropdown": 7,
    "secondary_sidebar_items": ["page-toc"],
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
}


def skip(app, what, name, obj, skipped, options):
    """Leave out what scikit-learn's base classes bring along; scikit-learn documents it."""
    module = str(getattr(obj, "__module__", ""))
    return True if module.startswith("sklearn") or re.fullmatch(r"set_\w+_request", name) else None


def signature_of_class(app, what, name, obj, options, signature, result):
    """The parameters of __init__, without types: classes that files keep have a __new__ that takes anything."""
    if what != "class" or signature is None:
        return None
    known = inspect.signature(obj).parameters.values()
    shown = [each.replace(annotation=each.empty) for each in known if not each.name.startswith("_")]
    return str(inspect.Signature(shown)), result


def plain(app, what, name, obj, options, lines):
    """Docstrings are plain text: names such as mean_ and sizes such as |u| are code, and no references."""
    for i, line in enumerate(lines):
        if "``" not in line:
            line = re.sub(r"(?<![\w`])([A-Za-z]\w*_)(?=[\s,.;:)]|$)", r"``\1``", line)
            line = re.sub(r"(?<![\w`])(\|[^|\s]+\|)", r"``\1``", line)
        lines[i] = re.sub(r"``(\w+)``\^", r"``\1`` ^", line)


def setup(app):
    app.connect("autodoc-skip-member", skip)
    app.connect("autodoc-process-signature", signature_of_class)
    app.connect("autodoc-process-docstring", plain, priority=100)

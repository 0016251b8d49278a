"""The documentation site. The pages are the files of docs/ and examples/, and docs/README.md is their order.

The root of the repository is Sphinx's source directory, so that a relative link leads to the same file on a forge and
on the site.
"""

from __future__ import annotations

import argparse
import itertools
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive

ROOT = Path(__file__).resolve().parents[2]
CONTENTS = "docs/README"
CHAPTER = "docs/decisions"
"""A page whose own pages stand below it in the sidebar."""

project = "freshgo"
author = "The freshgo authors"
copyright = author  # noqa: A001  (Sphinx names it so)
version = release = re.findall(r'__version__ = "(.+)"', (ROOT / "python/freshgo/__init__.py").read_text())[0]

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "README"
include_patterns = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "bench/README.md",
    "docs/**.md",
    "examples/*.ipynb",
]
# Sphinx walks every directory that is not named here.
exclude_patterns = [p.name for p in ROOT.iterdir() if p.is_dir() and p.name not in {"bench", "docs", "examples"}]
templates_path = ["templates"]

html_theme = "furo"
html_title = f"freshgo {release}"
html_copy_source = False
html_show_sphinx = False
html_additional_pages = {"index": "redirect.html"}
html_static_path = ["static"]
html_css_files = ["site.css"]
html_theme_options = {"light_css_variables": {"font-stack": "system-ui, sans-serif"}}

myst_heading_anchors = 4
nb_execution_mode = "cache"
nb_execution_cache_path = str(ROOT / "build" / "notebooks")
nb_execution_raise_on_error = True
nb_execution_timeout = 600
nb_output_stderr = "remove"  # warnings of other packages, with paths of the machine that builds the site
nb_merge_streams = True

autodoc_mock_imports = ["lightning"]  # takes seconds, and gives the class below freshgo.lightning.DataModule
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 88
napoleon_numpy_docstring = False

HEADING = re.compile(r"([A-Z][a-z ]+):")
KNOWN = {"Args", "Raises", "Returns", "Yields", "Attributes", "Example", "Examples", "Note"}


def sections(lines: list[str]) -> list[str]:
    """Name the headings of a docstring that Napoleon does not know, such as the subjects of ``Loader``'s arguments."""
    found = []
    for line, following in itertools.pairwise(lines):
        heading = HEADING.fullmatch(line)
        if heading and following.startswith("    ") and heading[1] not in KNOWN:
            found.append(heading[1])
    return found


def mark_code(lines: list[str]) -> list[str]:
    """Put a directive before each indented block that follows an empty line and a line that is indented less."""
    marked: list[str] = []
    code: int | None = None  # the indentation of the block we are in
    before = ""  # the last line that is not empty
    for i, line in enumerate(lines):
        indent = len(line) - len(line.lstrip())
        if line and code is not None and indent < code:
            code = None
        outer = len(before) - len(before.lstrip())
        begins = line and before and not lines[i - 1].strip() and indent >= outer + 4
        if code is None and begins and not before.endswith("::") and not before.lstrip().startswith(".."):
            code = indent
            marked += [" " * outer + ".. code-block:: python", ""]
        marked.append(line)
        before = line or before
    return marked


TYPE = re.compile(r"^( +[\w*, ]+ \()((?:[^()`]|`[^`]*`|\([^()]*\))*)(\):)")
"""A parameter with its type and default: ``    name (int, default 0: none):``."""


def without_colons(lines: list[str]) -> list[str]:
    """Put commas for colons between the parentheses of a parameter: Napoleon takes the first colon for its end."""
    return [TYPE.sub(lambda found: found[1] + found[2].replace(": ", ", ") + found[3], line) for line in lines]


def read_docstring(app: Any, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Make reStructuredText of what our docstrings write shorter, before Napoleon reads it."""
    app.config.napoleon_custom_sections = [(section, "params_style") for section in sections(lines)]
    lines[:] = without_colons(mark_code(lines))


def contents() -> list[tuple[str, list[str]]]:
    """Read the sidebar from docs/README.md: each heading with the pages that its section links to."""
    parts = re.split(r"^## (.+)$", (ROOT / f"{CONTENTS}.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    groups = []
    for title, text in zip(parts[::2], parts[1::2], strict=True):
        links = re.findall(r"^[-|] *\[[^]]*\]\(([^)#]+)\.(?:md|ipynb)\)", text, re.MULTILINE)
        groups.append((title, [str((ROOT / "docs" / link).resolve().relative_to(ROOT)) for link in links]))
    groups[0][1].append(CONTENTS)
    return groups


def add_contents(app: Any, docname: str, source: list[str]) -> None:
    """Give the first page, and the first page of a chapter, the tables of contents that a forge has no use for."""
    if docname == CHAPTER:
        listed = "\n".join(f"/docs/{page}" for page in re.findall(r"\]\((decisions/[^)#]+)\.md\)", source[0]))
        source[0] += f"\n```{{toctree}}\n:hidden:\n\n{listed}\n```\n"
    if docname != root_doc:
        return
    for title, pages in contents():
        listed = "\n".join(f"/{page}" for page in pages if page != root_doc)
        source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n{listed}\n```\n"


class CommandHelp(Directive):
    """Show what ``freshgo COMMAND --help`` prints, for every command."""

    def run(self) -> list[Any]:
        """Return a section for each command."""
        from freshgo._cli.parser import make_parser

        choices = next(a.choices for a in make_parser()._actions if isinstance(a, argparse._SubParsersAction))
        shown = []
        for name, parser in choices.items():
            section = nodes.section(ids=[name])
            parser.formatter_class = lambda prog: argparse.HelpFormatter(prog, width=88)
            text = parser.format_help()
            section += [nodes.title(name, name), nodes.literal_block(text, text, language="text")]
            shown.append(section)
        return shown


def setup(app: Any) -> None:
    """Connect the functions above to Sphinx's events."""
    app.add_directive("command-help", CommandHelp)
    app.connect("autodoc-process-docstring", read_docstring, priority=400)
    app.connect("source-read", add_contents)

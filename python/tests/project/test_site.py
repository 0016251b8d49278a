"""The documentation builds as a site: without a warning, with every public name, and with links that lead somewhere."""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote, urlsplit

import browser as chromium
import pytest

import freshgo

ROOT = Path(__file__).resolve().parents[3]


def test_the_reference_has_every_public_name() -> None:
    pages = list((ROOT / "docs" / "reference").glob("*.md"))
    if not pages:
        pytest.skip("the documentation is not beside the tests")
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    listed = re.findall(r"^\.\. (?:auto\w+|data):: (\S+)$", text, re.MULTILINE)
    assert len(listed) == len(set(listed)), "a name is in one place"
    names = set()
    for name in set(freshgo.__all__) - set(freshgo.errors.__all__):
        part = getattr(freshgo, name)
        names |= {f"freshgo.{name}.{n}" for n in part.__all__} if isinstance(part, ModuleType) else {f"freshgo.{name}"}
    modules = ["factored", "ops"]
    if importlib.util.find_spec("torch_geometric"):
        modules += ["nn", "pyg"]
    for module in modules:
        names |= {f"freshgo.{module}.{name}" for name in importlib.import_module(f"freshgo.{module}").__all__}
    assert names <= set(listed)


def test_the_contents_have_every_page() -> None:
    docs = ROOT / "docs"
    if not docs.is_dir():
        pytest.skip("the documentation is not beside the tests")
    contents = "".join((docs / page).read_text(encoding="utf-8") for page in ("README.md", "decisions.md"))
    links = re.findall(r"\]\(([^)#]+)", contents)
    pages = [*docs.rglob("*.md"), *(ROOT / "examples").glob("*.ipynb")]
    assert {page.resolve() for page in pages} - {docs / "README.md"} <= {(docs / link).resolve() for link in links}


def test_no_title_stands_twice_in_the_sidebar() -> None:
    docs = ROOT / "docs"
    if not docs.is_dir():
        pytest.skip("the documentation is not beside the tests")
    links = re.findall(r"\]\(([^)#]+\.(?:md|ipynb))\)", (docs / "README.md").read_text(encoding="utf-8"))
    titles = {}
    for path in {(docs / link).resolve() for link in links}:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".ipynb":
            text = "".join(json.loads(text)["cells"][0]["source"])
        titles[path] = re.findall(r"^# (.+)$", text, re.MULTILINE)[0]
    assert len(titles) > 40
    assert len(set(titles.values())) == len(titles)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for needed in ("sphinx", "furo", "myst_nb", "torch_geometric"):
        pytest.importorskip(needed)
    if not (ROOT / "docs" / "site").is_dir():
        pytest.skip("the documentation is not beside the tests")
    target = tmp_path_factory.mktemp("site")
    options = ["-W", "--keep-going", "-q", "-D", "nb_execution_mode=off"]  # test_notebook.py runs the notebooks
    command = [sys.executable, "-I", "-m", "sphinx", *options, "-b", "html", "-c", "docs/site", ".", target]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return target


class Page(HTMLParser):
    """The targets of a page's links, and the places that links may lead to."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.places: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.places |= {given[key] for key in ("id", "name") if key in given}
        self.links += [given[key] for key in ("href", "src") if key in given]


def test_every_link_leads_somewhere(site: Path) -> None:
    pages = {path.resolve(): Page(path) for path in site.rglob("*.html")}
    assert len(pages) > 30
    broken = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            missing = not target.exists()
            if target in pages and parts.fragment:
                missing = unquote(parts.fragment) not in pages[target].places
            if missing:
                broken.append(f"{path.relative_to(site)}: {link}")
    assert not broken


class Fields(HTMLParser):
    """The names of parameters in lists of fields, which are in bold."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.names: list[str] = []
        self._bold = self._fields = 0
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._fields += tag == "dl" and "field-list" in (dict(attrs).get("class") or "")
        self._bold = tag == "strong" and self._fields

    def handle_endtag(self, tag: str) -> None:
        self._bold = 0

    def handle_data(self, data: str) -> None:
        if self._bold:
            self.names.append(data)


def test_the_name_of_a_parameter_is_a_name(site: Path) -> None:
    names = [name for page in (site / "docs" / "reference").glob("*.html") for name in Fields(page).names]
    assert {"input_nodes", "weight_attr", "device_cache"} <= set(names)
    assert [name for name in names if re.search(r"[()]|default", name)] == []


def test_decisions_are_below_one_entry(site: Path) -> None:
    page = (site / "docs" / "start.html").read_text(encoding="utf-8")
    assert page.count('class="toctree-l1"') > 30 and "decisions.html" in page
    assert not re.findall(r'class="toctree-l1"><a [^>]*href="decisions/', page)


def test_the_first_page_leads_to_all_others(site: Path) -> None:
    first = site / "README.html"
    linked = {(site / unquote(urlsplit(link).path)).resolve() for link in Page(first).links}
    made = {path.resolve() for path in site.rglob("*.html")}
    tools = {site / name for name in ("index.html", "search.html", "genindex.html", "py-modindex.html")}
    assert made - {path.resolve() for path in tools} - {first.resolve()} <= linked


class Quiet(SimpleHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/favicon.ico":  # browsers ask for one; the site has none
            self.send_response(204)
            self.end_headers()
        else:
            super().do_GET()

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Browser]:
    program = chromium.installed()
    if program is None:
        pytest.skip("no Chromium is installed (the Debian package chromium)")
    opened = chromium.Browser(program, tmp_path_factory.mktemp("chromium"))
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.mark.parametrize("width", [1280, 400])
def test_pages_render_without_errors(browser: chromium.Browser, address: str, site: Path, width: int) -> None:
    browser.width(width)
    wrong = {}
    apart = {site / "index.html", site / "search.html"}  # the two tests below open these
    for path in sorted(set(site.rglob("*.html")) - apart):
        page = path.relative_to(site).as_posix()
        browser.open(f"{address}/{page}")
        wide = browser.value("document.documentElement.scrollWidth") > width
        heading = browser.value("document.querySelector('h1, h2')?.innerText")
        if browser.errors or wide or not heading:
            wrong[page] = [*browser.errors, f"wider than {width}: {wide}", f"heading: {heading}"]
    assert not wrong


def test_the_search_finds_the_loader(browser: chromium.Browser, address: str) -> None:
    browser.width(1280)
    browser.open(f"{address}/search.html?q=Loader")
    found = "[...document.querySelectorAll('#search-results li a')].map(a => a.getAttribute('href')).join(' ')"
    assert browser.wait(f"({found}).includes('freshgo.Loader') && ({found})"), browser.value("document.body.innerText")
    assert not browser.errors


def test_the_root_leads_to_the_readme(browser: chromium.Browser, address: str) -> None:
    browser.open(f"{address}/")
    assert browser.wait("location.pathname.endsWith('/README.html') && document.readyState === 'complete'")

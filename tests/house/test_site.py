"""The documentation site: it builds without a network, no link of it is dead, and findings link to its rule pages."""

from __future__ import annotations

import json
import os
import posixpath
import re
import resource
import shutil
import subprocess
import sys
from functools import cache
from html import unescape
from pathlib import Path
from urllib.parse import unquote

import pytest

from dslint.report import links
from dslint.rules.registry import all_rules

pytest.importorskip("material", reason="mkdocs-material is not installed: pip install '.[docs]'")

ROOT = Path(__file__).resolve().parents[2]
ADDRESS = "https://docs.example/dslint/"
# Processor time; a build on an idle machine takes less than half of it.
MOST_SECONDS = 60
_ATTRIBUTE = re.compile(r'<(?P<tag>\w+)[^>]*?\s(?P<name>href|src)="?(?P<target>[^"\s>]*)"?')
_ID = re.compile(r'\sid="?([^"\s>]+)"?')


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site, made where no network is, if the machine can take it away."""
    folder = tmp_path_factory.mktemp("site")
    lone = ["unshare", "--map-root-user", "--net"]
    can_unshare = shutil.which("unshare") and not subprocess.run([*lone, "true"], capture_output=True).returncode
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [*lone, *command] if can_unshare else command,
        cwd=ROOT,
        env={**os.environ, "DSLINT_DOCS_URL": ADDRESS, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stdout + done.stderr
    assert after.ru_utime - before.ru_utime < MOST_SECONDS
    return folder


def pages(site: Path) -> list[Path]:
    return sorted(site.rglob("*.html"))


@cache
def ids(page: Path) -> frozenset[str]:
    return frozenset(unescape(found) for found in _ID.findall(page.read_text(encoding="utf-8")))


def targets(page: Path) -> set[tuple[str, str]]:
    """Tag and target of everything that a page links to or loads."""
    text = page.read_text(encoding="utf-8")
    return {(match["tag"], unescape(match["target"])) for match in _ATTRIBUTE.finditer(text)}


def test_every_link_leads_to_a_page_and_a_heading(site: Path) -> None:
    dead = []
    for page in pages(site):
        # The page for what is not found may be shown at any address.
        where = "" if page.name == "404.html" else page.parent.relative_to(site).as_posix()
        for _, target in targets(page):
            if target.startswith(ADDRESS):
                target = "/" + target.removeprefix(ADDRESS)
            elif "://" in target or target.startswith(("mailto:", "data:", "javascript:")):
                continue
            path, _, heading = unquote(target).partition("#")
            path = path.removeprefix("/dslint").partition("?")[0]
            file = site / (
                path.lstrip("/") if path.startswith("/") else posixpath.normpath(posixpath.join(where, path))
            )
            file = page if not path else file / "index.html" if file.is_dir() else file
            if not file.is_file() or (heading and file.suffix == ".html" and heading not in ids(file)):
                dead.append(f"{page.relative_to(site)}: {target}")
    assert dead == []


def test_nothing_is_loaded_from_another_host(site: Path) -> None:
    for page in pages(site):
        loaded = {target for tag, target in targets(page) if tag in ("script", "img", "iframe", "source")}
        loaded |= set(
            re.findall(r'<link[^>]*rel="?(?:stylesheet|preconnect|preload|icon)"?[^>]*>', page.read_text("utf-8"))
        )
        assert [target for target in loaded if re.search(r"//(?!docs\.example/)", target)] == [], page
    for style in [*site.rglob("*.css"), *site.rglob("*.svg")]:
        assert re.findall(r"(?:url\(|@import)[\"']?https?:", style.read_text("utf-8")) == [], style


def test_every_rule_has_the_page_that_its_findings_link_to(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSLINT_DOCS_URL", ADDRESS)
    index = (site / "rules/index.html").read_text(encoding="utf-8")
    for info in all_rules():
        address = links.rule_url(info.code)
        text = (site / address.removeprefix(ADDRESS) / "index.html").read_text(encoding="utf-8")
        assert f'<link rel="canonical" href="{address}">' in text
        title = re.search(r"<h1[^>]*>(.*?)<", text)
        assert title
        assert title[1] == f"{info.code} {info.name}"
        assert f"<title>{title[1]} - dslint</title>" in text
        assert f'href="{info.code}/"' in index
        assert 'href="../">all rules</a>' in text


def test_rules_names_and_chinese_pages_can_be_searched_for(site: Path) -> None:
    index = json.loads((site / "search/search_index.json").read_text(encoding="utf-8"))
    titles = {entry["location"]: entry["title"] for entry in index["docs"]}
    assert titles["rules/DSL201/"] == "DSL201 collective-under-rank-guard"
    assert any("overlap_comm" in entry["text"] for entry in index["docs"] if entry["location"] == "rules/DSL160/")
    assert any("基线" in entry["title"] for entry in index["docs"] if entry["location"].startswith("zh/"))
    separator = re.compile(index["config"]["separator"])
    assert [part for part in separator.split("写一份基线") if part] == list("写一份基线")
    assert [part for part in separator.split("zero_optimization.stage") if part] == ["zero", "optimization", "stage"]


def test_chinese_pages_say_that_they_are_chinese(site: Path) -> None:
    assert '<html lang="zh-CN"' in (site / "zh/start/index.html").read_text(encoding="utf-8")
    assert '<html lang="en"' in (site / "start/index.html").read_text(encoding="utf-8")


def test_the_metadata_and_the_site_have_one_address() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    stated = re.search(r'^Documentation = "(.*)"$', text, re.M)
    assert (stated[1] if stated else "") == links.DOCUMENTATION
    assert "site_url" not in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")

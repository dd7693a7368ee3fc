"""Hooks of the documentation site (``mkdocs.yml``).

Rules have addresses that outlive their names (``rules/DSL201/``). Pages and files of the repository that a page links
to and that lie outside of ``docs/`` (the changelog, schemas, CI files) become part of the site, under ``project/``, so
that no link leads out of it. The address of the site is that of the findings (``dslint/report/links.py``).
"""

from __future__ import annotations

import posixpath
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
OUTSIDE = "project"
# Pages of the menu that no page has to link to.
PAGES = ("CHANGELOG.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "schemas/README.md", "benchmarks/README.md")
# The front pages of the repository; that of the site says the same.
FRONT = {"README.md": "docs/index.md", "README.zh-CN.md": "docs/zh/index.md"}
_LINK = re.compile(r"(?P<lead>\]\()(?P<target>[^)\s#]+)(?P<heading>#[^)\s]*)?(?=\))")
_FENCE = re.compile(r"^(?P<fence>`{3,}|~{3,}).*?^(?P=fence)\s*$", re.M | re.S)
_RULE = re.compile(r"rules/(?P<code>DSL\d+)-[\w-]+\.md")
# The line of facts below the name of a rule.
_FACTS = re.compile(r"^\*\*(error|warning|info)\*\* · .*$", re.M)
# What generated pages begin with; the title of a page must be its first element.
_NOTE = re.compile(r"\A(<!--.*?-->\s*)+", re.S)
# What the theme says around the text.
_CHINESE_LABELS = {
    "Table of contents": "目录",
    "Back to top": "回到页面顶部",
    "Skip to content": "跳转至正文",
    "Search": "搜索",
    "Previous": "上一页",
    "Next": "下一页",
}
_LABEL = re.compile(rf"(?P<lead>[>\"]\s*)(?P<label>{'|'.join(_CHINESE_LABELS)})(?=\s*[<\":])")
# A line break between two Chinese characters or marks is no space there.
_HAN_BREAK = re.compile(r"(?<=[\u3000-\u9fff\uff00-\uffef])\n(?=[\u3000-\u9fff\uff00-\uffef])")
# Pages that need the width of the menu, for a table or since they are alone in it.
_WIDE = ("index.md", "rules/README.md", "comparison.md")


def on_config(config: Any) -> Any:
    """Take the address of the site from where the findings have it."""
    sys.path.insert(0, str(ROOT))
    from dslint.report.links import documentation

    config.site_url = config.site_url or documentation()
    return config


def on_files(files: Files, config: Any) -> Files:
    """Give the rules their addresses, and take in what lies outside of ``docs/`` and is linked to."""
    for file in files:
        if match := _RULE.fullmatch(file.src_uri):
            page = f"rules/{match['code']}"
            file.dest_uri = f"{page}/index.html" if config.use_directory_urls else f"{page}.html"
    inside = {f"docs/{file.src_uri}" for file in files}
    for path in sorted(_reachable(sorted(inside)) - inside):
        files.append(File.generated(config, f"{OUTSIDE}/{path}", abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Lead links to files outside of ``docs/`` to their copies, and put the way back on the page of a rule."""
    markdown = _NOTE.sub("", markdown)
    if _RULE.fullmatch(page.file.src_uri):
        page.meta.setdefault("search", {"boost": 2})
        markdown = _FACTS.sub(r"\g<0> · [all rules](README.md)", markdown, count=1)
    if page.file.src_uri in _WIDE:
        page.meta.setdefault("hide", ["navigation"])
    own = _source(page.file.src_uri)
    pieces, last = [], 0
    for fence in _FENCE.finditer(markdown):
        pieces += [_led(markdown[last : fence.start()], own, page.file.src_uri), fence[0]]
        last = fence.end()
    return "".join([*pieces, _led(markdown[last:], own, page.file.src_uri)])


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Say that Chinese pages are in Chinese, which decides the glyphs, and so are the words around the text."""
    if not _is_chinese(page.file.src_uri):
        return output
    output = output.replace('<html lang="en"', '<html lang="zh-CN"', 1)
    return _LABEL.sub(lambda match: f"{match['lead']}{_CHINESE_LABELS[match['label']]}", output)


def _is_chinese(uri: str) -> bool:
    return uri.startswith("zh/")


def _source(uri: str) -> str:
    """The path in the repository of a file of the site."""
    return uri.removeprefix(f"{OUTSIDE}/") if uri.startswith(f"{OUTSIDE}/") else f"docs/{uri}"


def _led(text: str, own: str, uri: str) -> str:
    """The text with links between files of the site, from those between files of the repository."""

    if _is_chinese(uri):
        text = _HAN_BREAK.sub("", text)

    def lead(match: re.Match[str]) -> str:
        path = _linked(own, match["target"])
        if path is None or (path.startswith("docs/") and own.startswith("docs/")):
            return match[0]
        path = FRONT.get(path, path)
        target = path.removeprefix("docs/") if path.startswith("docs/") else f"{OUTSIDE}/{path}"
        return f"{match['lead']}{posixpath.relpath(target, posixpath.dirname(uri) or '.')}{match['heading'] or ''}"

    return _LINK.sub(lead, text)


def _linked(own: str, target: str) -> str | None:
    """The file of the repository that a link of another one means."""
    if "://" in target or target.startswith(("/", "mailto:")):
        return None
    path = posixpath.normpath(posixpath.join(posixpath.dirname(own), target))
    return path if (ROOT / path).is_file() else None


def _reachable(start: list[str]) -> set[str]:
    """All files of the repository that are linked to from these, or from one that is."""
    found: set[str] = set()
    waiting = [*start, *PAGES]
    while waiting:
        path = waiting.pop()
        if path in found or path in FRONT:
            continue
        found.add(path)
        if path.endswith(".md"):
            waiting += _links_of(path)
    return found


def _links_of(path: str) -> Iterator[str]:
    text = _FENCE.sub("", (ROOT / path).read_text(encoding="utf-8"))
    for match in _LINK.finditer(text):
        if (linked := _linked(path, match["target"])) is not None:
            yield linked

"""Put what rules say into the catalogue of a language, as entries that wait for a translation.

Usage: ``python scripts/extract_messages.py [--missing] [--pages] CODE_OR_PREFIX ...``. The examples of the rules are
checked; of each text that somebody is told, the template in the source is searched (a string or f-string of dslint
that it is made of), and is added to ``dslint/translate/zh_CN.po`` if the catalogue does not know the text already.
``--missing`` only prints the texts that have no translation. ``--pages`` does the same with the rules' pages.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator, Sequence
from functools import cache

from babel.messages.catalog import Catalog
from babel.messages.pofile import read_po, write_po
from generate_translations import compiled
from print_messages import ROOT, findings

from dslint.core.finding import Finding
from dslint.rules.explain import paragraphs
from dslint.rules.registry import all_rules, load_rule
from dslint.translate.catalogue import Catalogue, Template

PO = ROOT / "dslint" / "translate" / "zh_CN.po"
# Where the words of findings are made.
ROOMS = ("rules", "python", "model", "engine", "core", "suppress", "settings")
# Fewer letters than these say nothing: a name, a value, glue between two of them.
_LEAST = 8
_FLAG = ("python-brace-format",)
_ENGLISH = re.compile(r"\b[a-z][a-z'-]+ [a-z][a-z'-]+ [a-z][a-z'-]+\b")
QUOTED = re.compile(r"`[^`]*`|\"[^\"]*\"")


@cache
def templates() -> tuple[Template, ...]:
    """Every string and f-string of dslint that may be a text or part of one, the most particular first."""
    found: dict[str, None] = {}
    for room in ROOMS:
        for path in sorted((ROOT / "dslint" / room).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                text = _template(node)
                if text is not None and " " in text:
                    found[text] = None
    made = [Template.of(text, text) for text in found]
    return tuple(sorted((t for t in made if t.weight >= _LEAST), key=lambda t: -t.weight))


def _template(node: ast.AST) -> str | None:
    """The text of an expression with numbered placeholders for its parts; ``None`` where it is no text."""
    pieces = _pieces(node)
    if not any(pieces):
        return None
    # Two parts side by side are one: nothing says where the first ends.
    pieces = [piece for index, piece in enumerate(pieces) if piece is not None or index == 0 or pieces[index - 1]]
    number = iter(range(1000))
    return "".join(f"{{{next(number)}}}" if piece is None else piece for piece in pieces)


def _pieces(node: ast.AST) -> list[str | None]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [node.value]
    if isinstance(node, ast.JoinedStr):
        return [piece for value in node.values for piece in (_pieces(value) or [None])]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _pieces(node.left) or [None], _pieces(node.right) or [None]
        return [*left, *right] if any(left) or any(right) else []
    return []


def source_of(text: str) -> str:
    """The template that a text was made of; the text itself where none is found."""
    return next((template.english for template in templates() if template.values(text) is not None), text)


def told(finding: Finding) -> Iterator[str]:
    """Every sentence of a finding."""
    yield finding.message
    yield finding.hint
    yield from (location.label for location in (finding.location, *finding.related))
    yield from (f"assumes that {words}" for words in finding.assumptions)
    if finding.fix is not None:
        yield finding.fix.title


def asked(prefixes: Sequence[str], is_pages: bool) -> Iterator[tuple[str, str]]:
    """Code and text of all that these rules say: of their pages, or of their findings in examples."""
    if not is_pages:
        for finding in findings(prefixes):
            yield from ((finding.code, text) for text in told(finding) if text)
        return
    for info in all_rules():
        if info.code.startswith(tuple(prefixes)):
            yield info.code, f"{info.summary}."
            yield from ((info.code, text) for text in paragraphs(load_rule(info.code).explanation))


def left_in_english(text: str) -> bool:
    """Whether words of dslint are left in a translation: three in a row that are neither code nor quoted."""
    return _ENGLISH.search(QUOTED.sub("、", text)) is not None


def add(catalog: Catalog, code: str, text: str, is_template: bool, context: str | None = None) -> None:
    """Put a text that waits for its translation into the catalogue, and what is put together in it."""
    english = source_of(text) if is_template else text
    is_filled = is_template and "{0}" in english
    entry = catalog.get(english, context)
    comments = [code] if english == text else [code, text]
    if entry is None:
        catalog.add(english, "", auto_comments=comments, context=context, flags=_FLAG if is_filled else ())
    elif not entry.string and text not in entry.auto_comments and len(entry.auto_comments) < 5:
        entry.auto_comments.append(text)
    for value in (Template.of(english, english).values(text) or {}).values() if is_filled else ():
        if left_in_english(value):
            add(catalog, code, value, is_template, "phrase")


def main() -> int:
    """Extract or print; the exit status is 1 where ``--missing`` finds something."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--missing", action="store_true")
    parser.add_argument("--pages", action="store_true")
    parser.add_argument("codes", nargs="+", metavar="CODE")
    given = parser.parse_args()
    known = Catalogue.of(compiled(PO)[0])
    unknown: dict[str, str] = {}
    for code, text in asked(given.codes, given.pages):
        # A page has paragraphs of few words between much code.
        if left_in_english(known(text)) or (given.pages and not known.knows(text)):
            unknown.setdefault(text, code)
    if given.missing:
        for text, code in unknown.items():
            print(f"{code}  {text}")
        return bool(unknown)
    with PO.open("rb") as file:
        catalog = read_po(file)
    for text, code in unknown.items():
        add(catalog, code, text, not given.pages)
    with PO.open("wb") as file:
        write_po(file, catalog, width=0, omit_header=False)
    print(f"{len(unknown)} texts without a translation, {sum(not m.string for m in catalog if m.id)} entries wait")
    return 0


if __name__ == "__main__":
    sys.exit(main())

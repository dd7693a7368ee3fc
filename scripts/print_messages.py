"""Print every message of the examples of the rules, once, for a person to read from top to bottom.

Usage: ``python scripts/print_messages.py [--out FILE] [--words] [CODE_OR_PREFIX ...]``. ``--words`` prints, instead,
how long the headlines are: median, 95th percentile, and the longest ones.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import quantiles

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from dslint.core.finding import Finding  # noqa: E402
from dslint.engine.run import check_paths  # noqa: E402
from dslint.rules.base import Example  # noqa: E402
from dslint.rules.registry import all_rules, load_rule  # noqa: E402
from dslint.settings import make_settings  # noqa: E402


def found_in(code: str, example: Example, is_optional: bool) -> list[Finding]:
    """The findings of the rule in one of its examples."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / ".git").mkdir()
        for path, text in example.files.items():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(text.encode())
        os.chdir(folder)
        more = {"extend-select": [code]} if is_optional else {}
        settings = make_settings({**more, **example.settings, "cache": False, "jobs": 1}, folder)
        found = check_paths(["."], settings).findings
        os.chdir(ROOT)
    return [finding for finding in found if finding.code == code]


def findings(prefixes: Sequence[str]) -> Iterator[Finding]:
    """The findings of all bad examples of the rules with these prefixes, each text once."""
    seen: set[tuple[str, str]] = set()
    for info in all_rules():
        if not info.code.startswith(tuple(prefixes)):
            continue
        rule = load_rule(info.code)
        for example in rule.examples:
            if not example.at:
                continue
            for finding in found_in(info.code, example, rule.meta.optional):
                if (info.code, finding.message) not in seen:
                    seen.add((info.code, finding.message))
                    yield finding


def page(found: Sequence[Finding]) -> Iterator[str]:
    """Everything that a person is told, a line each."""
    code = ""
    for finding in found:
        if finding.code != code:
            code = finding.code
            yield f"\n{code} {finding.name}"
        yield f"  {finding.severity.value}: {finding.message}"
        yield from (f"      assumes that {words}" for words in finding.assumptions)
        yield from (f"      see: {other.label}" for other in finding.related)
        if finding.hint:
            yield f"      help: {finding.hint}"
        if finding.fix and finding.fix.title != finding.hint:
            yield f"      fix: {finding.fix.title}"


def lengths(found: Sequence[Finding]) -> Iterator[str]:
    """How long the headlines are, and the longest."""
    by_length = sorted(found, key=lambda finding: -len(finding.message))
    parts = quantiles([len(finding.message) for finding in found], n=20)
    yield f"{len(found)} headlines: median {parts[9]:.0f}, 95th percentile {parts[18]:.0f} characters"
    yield from (f"{len(f.message):>4}  {f.code}  {f.message}" for f in by_length[: len(found) // 5])


def main() -> int:
    """Print what the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("prefixes", nargs="*", default=[], metavar="CODE")
    parser.add_argument("--out", metavar="FILE")
    parser.add_argument("--words", action="store_true")
    args = parser.parse_args()
    found = list(findings(args.prefixes or ["DSL"]))
    text = "\n".join(lengths(found) if args.words else page(found)) + "\n"
    if args.out:
        Path(args.out).write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())

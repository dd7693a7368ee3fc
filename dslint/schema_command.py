"""``dslint schema``: the JSON Schema of a DeepSpeed or accelerate config, of dslint's settings, or of a plan."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

from dslint.core.commandline import Parser, say

SUBJECTS = ("deepspeed", "accelerate", "dslint", "plan")
DONE, USAGE = 0, 2


def main(arguments: list[str]) -> int:
    """Print the schema that the arguments name; returns the exit code."""
    options = schema_parser().parse_args(arguments)
    if options.version is not None and options.subject != "deepspeed":
        say(f"--version names a DeepSpeed release; `dslint schema {options.subject}` has one schema")
        return USAGE
    if options.subject == "deepspeed":
        try:
            schema = deepspeed_schema(options.version)
        except UnknownReleaseError as error:
            say(str(error))
            return USAGE
    else:
        from dslint.core.schemafiles import load_file

        schema = load_file(f"{options.subject}.schema.json")
    sys.stdout.write(json.dumps(schema, indent=2, ensure_ascii=False) + "\n")
    return DONE


def schema_parser() -> Parser:
    """The parser of ``dslint schema``."""
    parser = Parser(prog="dslint schema", description="Print a JSON Schema (draft-07) for editors and other tools.")
    parser.add_argument(
        "subject",
        choices=SUBJECTS,
        help="DeepSpeed config, accelerate config, dslint's settings, or what `dslint plan --format json` prints",
    )
    parser.add_argument(
        "--version", metavar="V", help="DeepSpeed release: 0.16.9, or 0.16 for the newest of those (default: newest)"
    )
    return parser


class UnknownReleaseError(ValueError):
    """A release that no schema describes, as one line."""


def deepspeed_schema(version: str | None) -> dict[str, Any]:
    """The schema of a release, under the name of that release.

    Raises:
        UnknownReleaseError: the text is no release that is described.
    """
    from dslint.model.deepspeed.schema import load_schema, point_of

    release = release_named(version)
    schema, point = load_schema(release), point_of(release)
    comment = schema["$comment"] if point == release else f"{schema['$comment']} Unchanged up to {release}."
    names = {
        "$id": f"urn:dslint:deepspeed-config:{release}",
        "$comment": comment,
        "title": f"DeepSpeed {release} configuration",
    }
    return {key: names.get(key, value) for key, value in schema.items()}


def release_named(version: str | None) -> str:
    """The release that a text means: the newest of its line for ``0.16``.

    Raises:
        UnknownReleaseError: no described release is called so.
    """
    from dslint.model.deepspeed.releases import RELEASES
    from dslint.model.deepspeed.schema import NEWEST, history, numbers

    described = [r for r in RELEASES if numbers(r) >= numbers(history()["first"])]
    if version is None:
        return NEWEST
    text = re.sub(r"^(==|v)|\.[*x]$", "", version.strip())
    if text in described:
        return text
    line = (
        [release for release in described if release.startswith(f"{text}.")] if re.fullmatch(r"\d+\.\d+", text) else []
    )
    if line:
        return line[-1]
    raise UnknownReleaseError(
        f"no schema for DeepSpeed `{version}`: the releases {described[0]} to {described[-1]} have one"
        + _nearest(text, described)
    )


def _nearest(text: str, described: list[str]) -> str:
    """The release that was probably meant: of the same line, else the oldest or newest."""
    if not re.fullmatch(r"\d+(\.\d+)+", text):
        return ""
    line = text.rpartition(".")[0] + "."
    same = [release for release in described if release.startswith(line) and text.count(".") > 1]
    older = tuple(map(int, text.split("."))) < tuple(map(int, described[0].split(".")))
    return f"; did you mean `{same[-1] if same else described[0 if older else -1]}`?"

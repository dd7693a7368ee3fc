"""What is said in another language, and what stays as it is."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dslint.translate import LANGUAGES, english, language_of, translator
from dslint.translate.catalogue import Catalogue

ROOT = Path(__file__).parent.parent.parent
PLACEHOLDER = re.compile(r"\{\d+\}")


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, "en"),
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "zh_TW"}, "zh"),
        ({"LANG": "de_DE.UTF-8"}, "en"),
        ({"LANG": "C.UTF-8", "LANGUAGE": "zh"}, "en"),
        ({"LANG": "en_US.UTF-8", "LC_ALL": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": "C"}, "en"),
        ({"LANG": "en_US.UTF-8", "LANGUAGE": "zh_CN:en"}, "zh"),
        ({"LANG": "zh_CN.UTF-8", "LANGUAGE": "en:zh"}, "en"),
        ({"LANG": "zh_CN.UTF-8", "LANGUAGE": "fr"}, "zh"),
    ],
)
def test_the_language_is_that_of_the_environment(environ: dict[str, str], expected: str) -> None:
    assert language_of(environ) == expected


def made(**rows: object) -> Catalogue:
    return Catalogue.of(json.dumps({"whole": {}, "parts": {}, "templates": [], "phrases": [], **rows}))


def test_values_stay_and_words_around_them_are_translated() -> None:
    catalogue = made(templates=[["`{0}` is {1}", "`{0}` 是 {1}"], ["`{0}` is an unknown key", "`{0}` 是未知的键"]])
    assert catalogue("`a.b{0}` is 3") == "`a.b{0}` 是 3"
    assert catalogue("`a` is an unknown key") == "`a` 是未知的键"  # the more particular template


def test_a_part_is_translated_where_it_is_known_and_only_as_a_part() -> None:
    catalogue = made(templates=[["the {0} is gone", "{0}没有了"]], parts={"key of the config": "配置的键"})
    assert catalogue("the key of the config is gone") == "配置的键没有了"
    assert catalogue("key of the config") == "key of the config"


def test_a_list_does_not_divide_what_is_known_as_a_whole() -> None:
    catalogue = made(
        templates=[["it holds {0}", "它含有{0}"], ["a number of {0}, or none", "{0} 的数目，或没有"]],
        phrases=[["{0}, {1}", "{0}、{1}"]],
    )
    assert catalogue("it holds a number of x, or none") == "它含有 x 的数目，或没有"
    assert catalogue("it holds x, y") == "它含有 x、y"


def test_a_placeholder_between_backticks_is_one_piece_of_code() -> None:
    catalogue = made(templates=[["Pass `{0}`", "传入 `{0}`"]])
    assert catalogue("Pass `a`") == "传入 `a`"
    assert catalogue("Pass `a` to `b`") == "Pass `a` to `b`"


def test_code_between_backticks_stays_as_it_is() -> None:
    catalogue = made(
        templates=[["`{0}` gives {1}", "`{0}` 给出 {1}"]],
        phrases=[["{0}, {1}", "{0}、{1}"], ["{0} or {1}", "{0} 或 {1}"]],
    )
    assert catalogue("`range(rank, n, world)` gives one, two") == "`range(rank, n, world)` 给出 one、two"
    assert catalogue("`a or b` gives `a or b`") == "`a or b` 给出 `a or b`"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("must be a number, but rank 0 has it", "必须是数字，但 rank 0 有"),
        ("must be 0, but some ranks have it", "必须是 0，但部分 rank 有"),
        ("must be 1 (its default), but some ranks have it", "必须是 1（默认值），但部分 rank 有"),
        ("write `a` now", "现在写 `a`"),
        ("write a number now", "现在写数字"),
        ("`参数` is read", "读取 `参数`"),
    ],
)
def test_a_space_stands_between_chinese_and_latin_letters_only(text: str, expected: str) -> None:
    catalogue = made(
        templates=[
            ["must be {0}, but {1}", "必须是 {0}，但{1}"],
            ["write {0} now", "现在写{0}"],
            ["`{0}` is read", "读取 `{0}`"],
        ],
        parts={"a number": "数字", "rank 0 has it": "rank 0 有", "some ranks have it": "部分 rank 有"},
        phrases=[["{0} (its default)", "{0}（默认值）"]],
    )
    assert catalogue(text) == expected


def test_a_placeholder_that_comes_twice_is_one_text() -> None:
    catalogue = made(templates=[["{0} is set, but {0} is not read", "{0} 已设置但不会被读取"]])
    assert catalogue("a is set, but a is not read") == "a 已设置但不会被读取"
    assert catalogue("a is set, but b is not read") == "a is set, but b is not read"


def test_sentences_are_translated_one_by_one_or_not_at_all() -> None:
    catalogue = made(whole={"Delete it": "删除它", "Or keep it.": "或保留。"})
    assert catalogue("Delete it. Or keep it.") == "删除它。或保留。"
    assert catalogue("Delete it. Or move it.") == "Delete it. Or move it."


def test_every_language_has_a_compiled_catalogue() -> None:
    for language in LANGUAGES:
        translate = translator(language)
        assert (translate is english) == (language == "en")
        assert (translate("help") == "help") == (language == "en")


def test_every_translation_has_the_placeholders_of_its_text() -> None:
    rows = json.loads((ROOT / "dslint" / "translate" / "zh.json").read_text(encoding="utf-8"))
    pairs = [*map(tuple, rows["templates"]), *map(tuple, rows["phrases"])]
    assert len(pairs) > 20
    other = [source for source, text in pairs if set(PLACEHOLDER.findall(source)) != set(PLACEHOLDER.findall(text))]
    assert other == []


def test_the_sections_of_pages_are_called_alike_and_keep_their_code() -> None:
    rows = json.loads((ROOT / "dslint" / "translate" / "zh.json").read_text(encoding="utf-8"))
    pages = {source: text for source, text in [*rows["whole"].items(), *rows["templates"]] if source.startswith("**")}
    assert len(pages) > 150
    names = {"What": "是什么", "Why it hurts": "有什么危害", "Fix": "如何修复", "When it stays quiet": "何时不报告"}
    for source, text in pages.items():
        title = source[2 : source.index(".**")]
        assert text.startswith(f"**{names.get(title, title)}。** "), source
        assert set(re.findall("`[^`]*`", text)) == set(re.findall("`[^`]*`", source))


def test_a_translation_that_lacks_a_placeholder_is_refused(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from generate_translations import compiled\n"
        "print(*compiled(Path(sys.argv[1]))[1])"
    )
    po = tmp_path / "zh_CN.po"
    po.write_text('msgid ""\nmsgstr ""\n\n#, python-brace-format\nmsgid "{0} of {1}"\nmsgstr "{0}"\n', encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, "-c", code, str(po)],
        cwd=ROOT / "scripts",
        env={"PYTHONPATH": str(ROOT / "scripts")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "other placeholders" in ran.stdout, ran.stderr

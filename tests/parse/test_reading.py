"""The encodings of files: UTF-8, and what a Python file declares."""

from __future__ import annotations

from pathlib import Path

import pytest
from command import dslint

from dslint.parse.reading import Unreadable, decode

_BODY = "# 训练\nimport torch.distributed as dist\n\ndist.init_process_group('gloo', timeout=7200)\n"


@pytest.mark.parametrize(
    ("head", "encoding"),
    [
        ("# -*- coding: gbk -*-\n", "gbk"),
        ("#!/usr/bin/env python\n# coding=gb18030\n", "gb18030"),
        ("# vim: set fileencoding=big5 :\n", "big5"),
    ],
)
def test_a_file_is_read_in_the_encoding_that_it_declares(head: str, encoding: str) -> None:
    text = head + (_BODY if encoding != "big5" else _BODY.replace("训练", "訓練"))
    assert decode(text.encode(encoding)) == text
    compile(text.encode(encoding), "train.py", "exec")  # Python reads it, too


@pytest.mark.parametrize("head", ["", "x = 1\n# coding: gbk\n", "# coding: no-such-codec\n", "# coding: ascii\n"])
def test_nothing_is_guessed(head: str) -> None:
    raw = (head + _BODY).encode("gbk")
    assert isinstance(decode(raw), Unreadable)


def test_a_fix_is_written_in_the_same_encoding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "train.py"
    path.write_bytes(("# coding: gbk\n" + _BODY).encode("gbk"))
    monkeypatch.chdir(tmp_path)
    dslint("--isolated", "--no-cache", "--fix", "train.py")
    assert "timedelta(seconds=7200)" in path.read_bytes().decode("gbk")
    assert "训练" in path.read_bytes().decode("gbk")

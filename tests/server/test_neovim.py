"""The whole path with Neovim's own client: a diagnostic appears, a quick fix is applied, hover shows a key."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from lsp_client import ROOT

pytest_plugins = ["lsp_fixtures"]

NVIM = shutil.which("nvim")
pytestmark = pytest.mark.skipif(NVIM is None, reason="nvim is not installed: apt-get install neovim")

# Written for 0.7, the release of Debian 12; what is newer takes it, too.
SCRIPT = r"""
local out = { found = {} }
local function done()
  local file = io.open(vim.env.RESULT, 'w')
  file:write(vim.fn.json_encode(out))
  file:close()
  vim.cmd('qall!')
end
local function wait(what, test)
  if not vim.wait(60000, test, 50) then
    out.failed = what
    done()
  end
end
vim.cmd('edit ds.json')
local id = vim.lsp.start_client({
  name = 'dslint',
  cmd = { vim.env.PYTHON, '-m', 'dslint', 'server' },
  root_dir = vim.fn.getcwd(),
})
vim.lsp.buf_attach_client(0, id)
wait('diagnostics', function() return #vim.diagnostic.get(0) > 0 end)
for _, found in ipairs(vim.diagnostic.get(0)) do
  local code = found.code or found.user_data.lsp.code
  table.insert(out.found, { code = code, line = found.lnum, severity = found.severity })
end
local function request(method, params)
  local answers = vim.lsp.buf_request_sync(0, method, params, 30000)
  return answers[id].result
end
vim.api.nvim_win_set_cursor(0, { 5, 36 })
local params = vim.lsp.util.make_range_params()
params.context = { diagnostics = {} }
for _, action in ipairs(request('textDocument/codeAction', params)) do
  if action.isPreferred then
    vim.lsp.util.apply_workspace_edit(action.edit, vim.lsp.get_client_by_id(id).offset_encoding)
    break
  end
end
wait('the fix', function()
  for _, found in ipairs(vim.diagnostic.get(0)) do
    if (found.code or found.user_data.lsp.code) == 'DSL103' then return false end
  end
  return true
end)
out.text = table.concat(vim.api.nvim_buf_get_lines(0, 0, -1, false), '\n')
vim.api.nvim_win_set_cursor(0, { 5, 26 })
out.hover = request('textDocument/hover', vim.lsp.util.make_position_params()).contents.value
vim.cmd('edit! run.sh')
vim.lsp.buf_attach_client(0, id)
local document = { textDocument = vim.lsp.util.make_text_document_params() }
out.lens = request('textDocument/codeLens', document)[1].command.title
done()
"""


def test_the_whole_path(own: Path, tmp_path: Path) -> None:
    assert NVIM is not None
    result, script = tmp_path / "result.json", tmp_path / "script.lua"
    script.write_text(SCRIPT)
    environment = {
        **os.environ,
        "PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
        "RESULT": str(result),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "XDG_DATA_HOME": str(tmp_path / "data"),
    }
    done = subprocess.run(
        [NVIM, "--headless", "--clean", "-n", "-c", f"luafile {script}", "-c", "qall!"],
        cwd=own,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.exists(), done.stderr
    found: dict[str, Any] = json.loads(result.read_text())
    assert "failed" not in found, (found, done.stderr)
    codes = {row["code"]: row for row in found["found"]}
    assert codes["DSL101"]["line"] == 3
    assert codes["DSL103"]["severity"] == 2
    assert '"offload_optimizer": {"device": "cpu"}' in found["text"]
    assert "`zero_optimization.stage`" in found["hover"]
    assert found["lens"].startswith("8 ranks")

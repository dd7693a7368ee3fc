import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { test } from 'node:test';
import type { Candidate, Tried, Verdict } from '../../src/find';
import { adviceFor, quoted } from '../../src/install';

const place = (command: string, more: Partial<Candidate> = {}): Candidate => ({
  origin: 'PATH',
  command,
  arguments: [],
  isChosen: false,
  ...more,
});
const environment = (python: string, more: Partial<Candidate> = {}): Candidate =>
  place(python, { origin: '.venv of the workspace', python, ...more });
const tried = (candidate: Candidate, verdict: Verdict): Tried => ({ candidate, verdict });
const advice = (failed: Tried[], folder: string | undefined = '/home/my project', isUv = false) =>
  adviceFor({ ready: undefined, failed }, folder, () => isUv);

test('where nothing is, an environment is made', () => {
  assert.deepEqual(advice([]), {
    message: 'dslint is not installed.',
    commands: [
      "cd '/home/my project'",
      'python3 -m venv .venv',
      ".venv/bin/python -m pip install 'deepspeed-lint[server]'",
    ],
  });
  assert.equal(advice([tried(place('/usr/bin/python3'), { kind: 'absent' })]).commands.length, 3);
});

test('the environment of the project gets dslint, by its own installer', () => {
  const failed = [
    tried(environment('/p/.venv/bin/python'), { kind: 'absent' }),
    tried(place('/usr/bin/dslint'), { kind: 'without-pygls' }),
  ];
  const { message, commands } = advice(failed);
  assert.equal(message, 'dslint is not installed in /p/.venv/bin/python (.venv of the workspace).');
  assert.deepEqual(commands, ["/p/.venv/bin/python -m pip install 'deepspeed-lint[server]'"]);
  const byUv = advice(failed, '/p', true).commands;
  assert.deepEqual(byUv, ["uv pip install --python /p/.venv/bin/python 'deepspeed-lint[server]'"]);
});

test('a dslint without its server is completed where it is', () => {
  const { message, commands } = advice([tried(place('/opt/tools/bin/dslint'), { kind: 'without-pygls' })]);
  assert.match(message, /lacks pygls/);
  assert.deepEqual(commands, ["/opt/tools/bin/python -m pip install 'deepspeed-lint[server]'"]);
});

test('a setting that leads nowhere is named, whatever else there is', () => {
  const failed = [tried(place('/no/dslint', { origin: 'dslint.path', isChosen: true }), { kind: 'broken', text: 'ENOENT' })];
  assert.deepEqual(advice(failed), { message: '/no/dslint (dslint.path) does not run: ENOENT', commands: [] });
});

test('the other project of the same name is told apart', () => {
  const other: Verdict = { kind: 'other-program', text: 'usage: dslint FILE' };
  const { message, commands } = advice([tried(environment('/p/.venv/bin/python'), other)]);
  assert.match(message, /is not this dslint, or too old: usage: dslint FILE$/);
  assert.equal(commands.length, 1);
});

test('the words of the commands are those that a shell reads', () => {
  for (const word of ["/a b/it's $HOME/`x`", '/plain/python3', '']) {
    assert.equal(execFileSync('sh', ['-c', `printf %s ${quoted(word)}`]).toString(), word);
  }
});

import assert from 'node:assert/strict';
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { candidates, check, find, type Candidate, type Surroundings } from '../../src/find';
import { isMadeByUv, isProgram, runIn } from '../../src/programs';

const root = mkdtempSync(join(tmpdir(), 'dslint-find-'));
after(() => rmSync(root, { recursive: true, force: true }));
const run = runIn(root, 5_000);

/** A program of the file system that says what a candidate would. */
function program(path: string, script: string): string {
  const file = join(root, path);
  mkdirSync(join(file, '..'), { recursive: true });
  writeFileSync(file, `#!/bin/sh\n${script}\n`);
  chmodSync(file, 0o755);
  return file;
}

function around(more: Partial<Surroundings>): Surroundings {
  const nothing = { path: '', interpreter: '', folders: [], environment: {}, selectedPython: undefined };
  return { ...nothing, isTrusted: true, platform: 'linux', exists: isProgram, ...more };
}

const commands = (found: readonly Candidate[]): string[] => found.map((one) => one.command);

test('places come in the order in which people expect them, each once', () => {
  const folder = join(root, 'order');
  const own = program('order/.venv/bin/python', '');
  const other = program('order/venv/bin/python', '');
  const active = program('active/bin/python', '');
  const conda = program('conda/bin/python', '');
  const chosen = program('chosen/bin/python', '');
  const onPath = program('bin/dslint', '');
  const python3 = program('bin/python3', '');
  const environment = { VIRTUAL_ENV: join(root, 'active'), CONDA_PREFIX: join(root, 'conda'), PATH: `.:bin:${root}/bin` };
  const found = candidates(around({ folders: [folder], environment, selectedPython: chosen }));
  assert.deepEqual(commands(found), [chosen, own, other, active, conda, onPath, python3]);
  assert.deepEqual(found[1]?.arguments, ['-m', 'dslint']);
  assert.deepEqual(found[5]?.arguments, []);
  const same = candidates(around({ folders: [folder], selectedPython: own }));
  assert.deepEqual(commands(same), [own, other]);
});

test('a setting counts over all places, and is not replaced by another', () => {
  const own = program('set/.venv/bin/python', '');
  const folders = [join(root, 'set')];
  const environment = { HOME: '/home/me', TOOLS: '/opt/tools' };
  const one = (path: string, interpreter = ''): Candidate | undefined => {
    const found = candidates(around({ path, interpreter, folders, environment }));
    assert.equal(found.length, 1);
    return found[0];
  };
  assert.equal(one('~/bin/dslint')?.command, '/home/me/bin/dslint');
  assert.equal(one('${env:TOOLS}/dslint')?.command, '/opt/tools/dslint');
  assert.equal(one('dslint')?.command, 'dslint');
  assert.equal(one('tools/dslint')?.command, join(root, 'set/tools/dslint'));
  const interpreter = one('', '${workspaceFolder}/.venv/bin/python');
  assert.equal(interpreter?.command, own);
  assert.equal(interpreter?.isChosen, true);
});

test('without trust nothing inside of the workspace is run', () => {
  const folder = join(root, 'untrusted');
  const own = program('untrusted/.venv/bin/python', '');
  program('untrusted/bin/dslint', '');
  const outside = program('untrusted-twin/bin/dslint', '');
  const environment = { VIRTUAL_ENV: join(folder, '.venv'), PATH: `${folder}/bin:${root}/untrusted-twin/bin` };
  const places = { folders: [folder], environment, selectedPython: own };
  assert.deepEqual(commands(candidates(around({ ...places, isTrusted: false }))), [outside]);
  assert.equal(candidates(around(places))[0]?.command, own);
});

test('environments of Windows lie elsewhere', () => {
  const found = candidates(
    around({
      platform: 'win32',
      folders: ['C:\\work'],
      environment: { Path: 'D:\\bin;relative', CONDA_PREFIX: 'D:\\conda' },
      exists: () => true,
    }),
  );
  assert.deepEqual(commands(found).slice(0, 4), [
    'C:\\work\\.venv\\Scripts\\python.exe',
    'C:\\work\\venv\\Scripts\\python.exe',
    'D:\\conda\\python.exe',
    'D:\\bin\\dslint.exe',
  ]);
});

test('what a program says decides whether it serves', async () => {
  const ask = (name: string, script: string) =>
    check({ origin: name, command: program(`said/${name}`, script), arguments: [], isChosen: false }, run);
  assert.deepEqual(await ask('ready', '[ "$1 $2" = "server --check" ] && echo "dslint 0.1.0 can serve"'), {
    kind: 'ready',
    version: '0.1.0',
  });
  const lacking = `echo "dslint: the server needs pygls: pip install 'deepspeed-lint[server]'" >&2; exit 2`;
  assert.deepEqual(await ask('lacking', lacking), { kind: 'without-pygls' });
  assert.deepEqual(await ask('absent', 'echo "/usr/bin/python3: No module named dslint" >&2; exit 1'), { kind: 'absent' });
  assert.deepEqual(await ask('other', 'echo "usage: dslint FILE"'), { kind: 'other-program', text: 'usage: dslint FILE' });
  assert.equal((await check({ origin: '', command: `${root}/none`, arguments: [], isChosen: false }, run)).kind, 'broken');
});

test('a program that never answers is ended', async () => {
  const hanging = { origin: '', command: program('hanging', 'exec sleep 60'), arguments: [], isChosen: false };
  const verdict = await check(hanging, runIn(root, 200));
  assert.deepEqual(verdict, { kind: 'broken', text: 'no answer within 0.2 s' });
});

test('the first that serves is taken, and the others are not asked', async () => {
  const places = ['absent', 'ready'].map((name) => ({ origin: name, command: join(root, 'said', name), arguments: [], isChosen: false }));
  const last = { origin: 'last', command: program('last', `touch ${root}/asked`), arguments: [], isChosen: false };
  const found = await find([...places, last], run);
  assert.equal(found.ready?.candidate.origin, 'ready');
  assert.deepEqual(found.failed.map(({ verdict }) => verdict.kind), ['absent']);
  assert.equal(isProgram(join(root, 'asked')), false);
});

test('programs run beside the workspace, and Python keeps its modules out', async () => {
  const { stdout } = await run(program('where', 'pwd; echo $PYTHONSAFEPATH; echo $PATH'), []);
  assert.deepEqual(stdout.split('\n'), [root, '1', process.env['PATH'], '']);
});

test('environments of uv are known', () => {
  const python = program('uv/bin/python', '');
  assert.equal(isMadeByUv(python), false);
  writeFileSync(join(root, 'uv/pyvenv.cfg'), 'home = /usr/bin\nuv = 0.4.1\n');
  assert.equal(isMadeByUv(python), true);
});

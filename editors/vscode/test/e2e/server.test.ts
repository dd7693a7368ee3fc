/** The real `dslint server`, found and started as the extension does it. `DSLINT_PYTHON` names an interpreter that has it. */
import assert from 'node:assert/strict';
import { spawn, type ChildProcess } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import {
  createProtocolConnection,
  StreamMessageReader,
  StreamMessageWriter,
  type CodeAction,
  type Diagnostic,
  type Hover,
  type InitializeResult,
  type ProtocolConnection,
  type PublishDiagnosticsParams,
} from 'vscode-languageserver-protocol/node';
import { candidates, find, type Found } from '../../src/find';
import { adviceFor } from '../../src/install';
import { isPage } from '../../src/pagenames';
import { environment, isMadeByUv, isProgram, runIn } from '../../src/programs';
import { wishesOf } from '../../src/settings';

const INCIDENT = process.env['DSLINT_INCIDENT'] ?? '../../tests/fixtures/projects/llava-loss-zero';
const root = mkdtempSync(join(tmpdir(), 'dslint-server-'));
const folder = join(root, 'project');
const config = join(folder, 'scripts/zero2.json');
const uri = pathToFileURL(config).href;
const text = readFileSync(join(INCIDENT, 'scripts/zero2.json'), 'utf8');

let process_: ChildProcess;
let client: ProtocolConnection;
let published: PublishDiagnosticsParams[] = [];

function look(interpreter: string): Promise<Found> {
  const workspace = { folders: [folder], selectedPython: undefined, isTrusted: true };
  const machine = { environment: process.env, platform: process.platform, exists: isProgram };
  return find(candidates({ path: '', interpreter, ...workspace, ...machine }), runIn(root));
}

async function diagnostics(wanted: (found: Diagnostic[]) => boolean): Promise<Diagnostic[]> {
  const until = Date.now() + 30_000;
  while (Date.now() < until) {
    const last = published.filter((one) => one.uri === uri).at(-1);
    if (last !== undefined && wanted(last.diagnostics)) {
      return last.diagnostics;
    }
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  assert.fail(`not published: ${JSON.stringify(published).slice(0, 2000)}`);
}

const isIncident = (found: Diagnostic[]): boolean => found.some((one) => one.code === 'DSL160');

before(async () => {
  cpSync(INCIDENT, folder, { recursive: true });
  mkdirSync(join(folder, '.git'));
  const found = await look(process.env['DSLINT_PYTHON'] ?? '');
  assert.ok(found.ready !== undefined, JSON.stringify(found.failed));
  const { command, arguments: args } = found.ready.candidate;
  const env = { ...environment(), XDG_CACHE_HOME: join(root, 'cache') };
  process_ = spawn(command, [...args, 'server'], { cwd: root, env, stdio: ['pipe', 'pipe', 'inherit'] });
  assert.ok(process_.stdout !== null && process_.stdin !== null);
  client = createProtocolConnection(new StreamMessageReader(process_.stdout), new StreamMessageWriter(process_.stdin));
  client.onNotification('textDocument/publishDiagnostics', (one: PublishDiagnosticsParams) => void published.push(one));
  client.listen();
  await client.sendRequest<InitializeResult>('initialize', {
    processId: process.pid,
    rootUri: pathToFileURL(folder).href,
    workspaceFolders: [{ uri: pathToFileURL(folder).href, name: 'project' }],
    capabilities: { window: { showDocument: { support: true } } },
    initializationOptions: wishesOf((name) => ({ minSeverity: 'warning' })[name]),
  });
  await client.sendNotification('initialized', {});
  await client.sendNotification('textDocument/didOpen', {
    textDocument: { uri, languageId: 'json', version: 1, text },
  });
});

after(() => {
  process_.kill('SIGKILL');
  rmSync(root, { recursive: true, force: true });
});

test('the incident is reported, with the place that makes it one', async () => {
  const found = (await diagnostics(isIncident)).find((one) => one.code === 'DSL160');
  assert.match(text.split('\n')[found?.range.start.line ?? 0] ?? '', /overlap_comm/);
  assert.match(found?.relatedInformation?.[0]?.location.uri ?? '', /pyproject\.toml$/);
});

test('a hover explains the key', async () => {
  const line = text.split('\n').findIndex((one) => one.includes('overlap_comm'));
  const found = await client.sendRequest<Hover>('textDocument/hover', { textDocument: { uri }, position: { line, character: 12 } });
  assert.match(JSON.stringify(found.contents), /overlap_comm/);
});

test('the rule has a page that the window can show', async () => {
  const shown = new Promise<string>((resolve) =>
    client.onRequest('window/showDocument', (params: { uri: string }) => {
      resolve(params.uri);
      return { success: true };
    }),
  );
  await client.sendRequest('workspace/executeCommand', { command: 'dslint.why', arguments: ['DSL160'] });
  const page = new URL(await shown);
  assert.ok(isPage(page.pathname), page.href);
  assert.match(readFileSync(page, 'utf8'), /DSL160/);
});

test('settings change without another server', async () => {
  await client.sendNotification('workspace/didChangeConfiguration', {
    settings: wishesOf((name) => ({ minSeverity: 'warning', deepspeedVersion: '0.17.5', ignore: ['DSL160'] })[name]),
  });
  await diagnostics((found) => !isIncident(found));
  await client.sendNotification('workspace/didChangeConfiguration', { settings: wishesOf(() => undefined) });
  await diagnostics(isIncident);
});

test('a quick fix mends the file', async () => {
  const [one] = (await diagnostics(isIncident)).filter(({ code }) => code === 'DSL160');
  assert.ok(one !== undefined);
  const found = await client.sendRequest<CodeAction[]>('textDocument/codeAction', {
    textDocument: { uri },
    range: one.range,
    context: { diagnostics: [one] },
  });
  const fix = found.find((action) => action.kind?.startsWith('quickfix.unsafe') ?? false);
  const [edit] = fix?.edit?.changes?.[uri] ?? [];
  assert.ok(edit !== undefined, JSON.stringify(found));
  const contentChanges = [{ range: edit.range, text: edit.newText }];
  published = [];
  await client.sendNotification('textDocument/didChange', { textDocument: { uri, version: 2 }, contentChanges });
  await diagnostics((left) => !isIncident(left));
});

test('an interpreter without dslint is told from one that has it', async () => {
  const python = await runIn(root)('python3', ['-c', 'import sys; print(sys._base_executable)']);
  const empty = join(root, 'empty');
  const made = await runIn(root, 60_000)(python.stdout.trim(), ['-m', 'venv', '--without-pip', empty]);
  assert.equal(made.code, 0, made.stderr);
  delete process.env['PYTHONPATH'];
  const found = await look(join(empty, 'bin/python'));
  assert.deepEqual(found.failed.map(({ verdict }) => verdict.kind), ['absent']);
  assert.match(adviceFor(found, folder, isMadeByUv).commands.join(), /empty\/bin\/python -m pip install/);
});

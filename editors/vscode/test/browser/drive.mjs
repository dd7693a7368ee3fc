/**
 * Tries the packaged extension in a real front end: code-server in headless Chromium, with the incident of LLaVA.
 *
 *   npm install --no-save playwright-core && npm run build && npm run package
 *   node test/browser/drive.mjs --code-server PATH --chromium PATH --python PATH [--out FOLDER] [--only NAME] [--keep]
 *
 * `--code-server` is the program, or its `out/node/entry.js`; `--python` an interpreter that has deepspeed-lint[server].
 * Each step is one line, a screenshot and its time; the first that fails ends its scene, and the exit code is 1.
 * `picture.png` is the one of docs/images/vscode.png.
 */
import { spawn, spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { chromium } from 'playwright-core';
import { SCENES } from './scenes.mjs';

const HERE = dirname(fileURLToPath(import.meta.url));
const EXTENSION = resolve(HERE, '../..');
const INCIDENT = resolve(EXTENSION, '../../tests/fixtures/projects/llava-loss-zero');

const { values } = parseArgs({
  options: {
    'code-server': { type: 'string', default: 'code-server' },
    chromium: { type: 'string', default: '/usr/bin/chromium' },
    python: { type: 'string', default: 'python3' },
    vsix: { type: 'string', default: join(EXTENSION, 'dslint.vsix') },
    out: { type: 'string', default: join(tmpdir(), 'dslint-screenshots') },
    only: { type: 'string' },
    keep: { type: 'boolean', default: false },
  },
});

const root = mkdtempSync(join(tmpdir(), 'dslint-browser-'));
mkdirSync(values.out, { recursive: true });

/** The words that start code-server. */
function codeServer(...args) {
  const program = values['code-server'].endsWith('.js') ? [process.execPath, values['code-server']] : [values['code-server']];
  const data = ['--user-data-dir', join(root, 'data'), '--extensions-dir', join(root, 'extensions')];
  return [...program, '--config', join(root, 'config.yaml'), ...data, ...args];
}

async function freePort() {
  const server = createServer();
  await new Promise((done) => server.listen(0, '127.0.0.1', done));
  const { port } = server.address();
  await new Promise((done) => server.close(done));
  return port;
}

function project(name) {
  const folder = join(root, name);
  cpSync(INCIDENT, folder, { recursive: true });
  mkdirSync(join(folder, '.git'));
  return folder;
}

function settings(more) {
  const file = join(root, 'data/User/settings.json');
  mkdirSync(dirname(file), { recursive: true });
  const common = {
    'workbench.startupEditor': 'none',
    'workbench.tips.enabled': false,
    'security.workspace.trust.enabled': false,
    'window.menuBarVisibility': 'hidden',
    'editor.minimap.enabled': false,
    'editor.fontSize': 13,
    'editor.occurrencesHighlight': 'off',
    'editor.selectionHighlight': false,
    'dslint.interpreter': resolve(values.python),
  };
  writeFileSync(file, JSON.stringify({ ...common, ...more }));
}

async function play(browser, name, scene) {
  const folder = project(name);
  const address = scene.workspace === undefined ? ['folder', folder] : ['workspace', scene.workspace(folder)];
  scene.prepare?.(folder);
  settings(scene.settings?.(folder) ?? {});
  const port = await freePort();
  const [command, ...args] = codeServer('--auth', 'none', '--bind-addr', `127.0.0.1:${port}`, '--disable-telemetry', '--disable-update-check');
  const environment = { ...process.env, XDG_CACHE_HOME: join(root, 'cache'), ...scene.environment?.(folder) };
  const server = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'], env: environment });
  const log = [];
  server.stdout.on('data', (data) => log.push(data.toString()));
  server.stderr.on('data', (data) => log.push(data.toString()));
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, permissions: ['clipboard-read', 'clipboard-write'] });
  const page = await context.newPage();
  let number = 0;
  const step = async (title, work) => {
    const began = Date.now();
    const file = join(values.out, `${name}-${String(++number).padStart(2, '0')}.png`);
    try {
      const said = await work();
      console.log(`ok   ${name}: ${title}${said ? ` (${said})` : ''} [${Date.now() - began} ms] ${file}`);
    } finally {
      await page.screenshot({ path: file });
    }
  };
  try {
    await until(async () => (await fetch(`http://127.0.0.1:${port}/healthz`)).ok);
    await page.goto(`http://127.0.0.1:${port}/?${new URLSearchParams([address])}`);
    await page.waitForSelector('.monaco-workbench .explorer-viewlet', { timeout: 60_000 });
    await scene.play({ page, step, folder, picture: join(values.out, 'picture.png') });
  } catch (error) {
    console.log(log.join('').slice(-2000));
    throw error;
  } finally {
    await context.close();
    server.kill('SIGTERM');
    await new Promise((done) => server.on('close', done));
  }
}

async function until(work, milliseconds = 30_000) {
  const end = Date.now() + milliseconds;
  for (;;) {
    try {
      if (await work()) {
        return;
      }
    } catch (error) {
      if (Date.now() > end) {
        throw error;
      }
    }
    if (Date.now() > end) {
      throw new Error('too late');
    }
    await new Promise((done) => setTimeout(done, 200));
  }
}

const [command, ...args] = codeServer('--install-extension', values.vsix);
const installed = spawnSync(command, args, { encoding: 'utf8' });
if (installed.status !== 0) {
  console.log(installed.stdout, installed.stderr);
  process.exit(1);
}
const browser = await chromium.launch({ executablePath: values.chromium, args: ['--no-sandbox'] });
let failures = 0;
for (const [name, scene] of Object.entries(SCENES)) {
  if (values.only === undefined || values.only === name) {
    try {
      await play(browser, name, scene);
    } catch (error) {
      failures += 1;
      console.log(`FAIL ${name}: ${error.stack}`);
    }
  }
}
await browser.close();
if (values.keep) {
  console.log(root);
} else {
  rmSync(root, { recursive: true, force: true });
}
process.exit(failures === 0 ? 0 : 1);

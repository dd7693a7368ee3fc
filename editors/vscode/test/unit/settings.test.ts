import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { documentSelector } from '../../src/files';
import { isPage } from '../../src/pagenames';
import { plainOf } from '../../src/plantext';
import { Restarts } from '../../src/restarts';
import { consequenceOf, STARTING, startingOf, WISHES, wishesOf } from '../../src/settings';

interface Manifest {
  activationEvents: string[];
  capabilities: { untrustedWorkspaces: { restrictedConfigurations: string[] } };
  contributes: {
    commands: { command: string }[];
    configuration: { properties: Record<string, { default: unknown; scope: string }> };
  };
}

const manifest = JSON.parse(readFileSync('package.json', 'utf8')) as Manifest;
const properties = manifest.contributes.configuration.properties;

test('every setting is one of the server, of its start, or of the protocol', () => {
  const known = [...WISHES, ...STARTING, 'trace.server'].map((name) => `dslint.${name}`);
  assert.deepEqual(Object.keys(properties).sort(), known.sort());
});

test('what nobody has set is not said: there the files of the project count', () => {
  const defaults = wishesOf((name) => properties[`dslint.${name}`]?.default);
  assert.deepEqual(defaults, { minSeverity: 'warning', codeLens: true, inlayHints: true, isolated: false });
});

test('what is set is said as it is', () => {
  const set: Record<string, unknown> = { worldSize: 16, select: ['DSL1'], perFileIgnores: { 'a/**': ['DSL2'] }, codeLens: false };
  assert.deepEqual(wishesOf((name) => set[name]), set);
});

test('settings of the start are read with care', () => {
  assert.deepEqual(startingOf(() => undefined), { enable: true, path: '', interpreter: '', logFile: '' });
  assert.deepEqual(startingOf((name) => ({ path: ' /a/dslint ', enable: false, interpreter: 7 })[name]), {
    enable: false,
    path: '/a/dslint',
    interpreter: '',
    logFile: '',
  });
});

test('a change restarts the server only where it decides how it starts', () => {
  const changed = (name: string) => consequenceOf((section) => section === name);
  assert.equal(changed('dslint.worldSize'), 'tell');
  assert.equal(changed('dslint.interpreter'), 'restart');
  assert.equal(changed('dslint.trace.server'), 'nothing');
  assert.equal(changed('python.analysis'), 'nothing');
});

test('a workspace without trust cannot name programs or files', () => {
  const restricted = manifest.capabilities.untrustedWorkspaces.restrictedConfigurations;
  const naming = ['dslint.path', 'dslint.interpreter', 'dslint.logFile', 'dslint.config'];
  assert.deepEqual([...restricted].sort(), naming.sort());
  for (const name of naming) {
    assert.equal(properties[name]?.scope, 'machine-overridable');
  }
});

test('the extension wakes up for the languages that it tells the server of', () => {
  for (const filter of documentSelector()) {
    if ('scheme' in filter && filter.language !== undefined) {
      assert.ok(manifest.activationEvents.includes(`onLanguage:${filter.language}`), filter.language);
    }
  }
});

test('a server that ends again and again is left alone', () => {
  const restarts = new Restarts();
  assert.deepEqual([0, 1, 2, 3].map((second) => restarts.allows(second * 1000)), [true, true, true, false]);
  assert.equal(restarts.allows(10 * 60 * 1000), true);
});

test('pages of rules are told from files of the user', () => {
  assert.equal(isPage('/home/me/.cache/dslint/pages/0.1.0/DSL160.md'), true);
  assert.equal(isPage('/home/me/pages/README.md'), false);
});

test('a plan is shown without its fences', () => {
  assert.equal(plainOf('```text\na\n  b\n```'), 'a\n  b\n');
  assert.equal(plainOf('a'), 'a\n');
});

/** Where the server may be, in the order in which people expect it, and which of these places has one. */
import { posix, win32, type PlatformPath } from 'node:path';
import { expand } from './settings';

/** A way to start dslint. */
export interface Candidate {
  /** Where it comes from, in words for people. */
  origin: string;
  command: string;
  arguments: readonly string[];
  /** The interpreter of the environment, where the place is one. */
  python?: string;
  /** A setting names it: if it does not work, no other is taken in its place. */
  isChosen: boolean;
}

/** What a candidate says when it is asked whether it can serve. */
export type Verdict =
  | { kind: 'ready'; version: string }
  | { kind: 'absent' }
  | { kind: 'without-pygls' }
  | { kind: 'other-program'; text: string }
  | { kind: 'broken'; text: string };

/** The end of a program: `code` is `undefined` where it did not start or was ended. */
export interface Ended {
  code: number | undefined;
  stdout: string;
  stderr: string;
}

export type Run = (command: string, args: readonly string[]) => Promise<Ended>;

/** All that decides where the server is looked for. */
export interface Surroundings {
  path: string;
  interpreter: string;
  folders: readonly string[];
  environment: Readonly<Record<string, string | undefined>>;
  /** What the Python extension has chosen. */
  selectedPython: string | undefined;
  /** Without trust nothing that lies in the folders of the workspace is run. */
  isTrusted: boolean;
  platform: NodeJS.Platform;
  exists: (path: string) => boolean;
}

export interface Tried {
  candidate: Candidate;
  verdict: Verdict;
}

export interface Found {
  ready: (Tried & { verdict: { kind: 'ready'; version: string } }) | undefined;
  /** What was asked before, and why it does not serve. */
  failed: Tried[];
}

const MODULE = ['-m', 'dslint'];
const ENVIRONMENTS = ['.venv', 'venv'];

/** All places that exist, the first wins. */
export function candidates(around: Surroundings): Candidate[] {
  const paths = pathsOf(around.platform);
  const chosen = chosenOf(around, paths);
  if (chosen !== undefined) {
    return [chosen];
  }
  const found: Candidate[] = [];
  const add = (origin: string, python: string): void => {
    const isSeen = found.some((other) => other.python === python);
    if (!isSeen && around.exists(python) && isAllowed(python, around)) {
      found.push({ origin, command: python, arguments: MODULE, python, isChosen: false });
    }
  };
  if (around.selectedPython !== undefined) {
    add('the interpreter of the Python extension', around.selectedPython);
  }
  for (const folder of around.folders) {
    for (const name of ENVIRONMENTS) {
      add(`${name} of the workspace`, interpreterOf(paths.join(folder, name), around.platform));
    }
  }
  for (const name of ['VIRTUAL_ENV', 'CONDA_PREFIX']) {
    const folder = around.environment[name];
    if (folder !== undefined && folder !== '') {
      add(name, interpreterOf(folder, around.platform, name === 'CONDA_PREFIX'));
    }
  }
  return [...found, ...onPath(around, paths)];
}

function chosenOf(around: Surroundings, paths: PlatformPath): Candidate | undefined {
  const join = (...parts: string[]): string => paths.join(...parts);
  const fill = (value: string): string => expand(value, around.folders, around.environment, join);
  if (around.path !== '') {
    return { origin: 'dslint.path', command: fill(around.path), arguments: [], isChosen: true };
  }
  if (around.interpreter !== '') {
    const python = fill(around.interpreter);
    return { origin: 'dslint.interpreter', command: python, arguments: MODULE, python, isChosen: true };
  }
  return undefined;
}

function pathsOf(platform: NodeJS.Platform): PlatformPath {
  return platform === 'win32' ? win32 : posix;
}

function interpreterOf(folder: string, platform: NodeJS.Platform, isConda = false): string {
  if (platform !== 'win32') {
    return posix.join(folder, 'bin', 'python');
  }
  return isConda ? win32.join(folder, 'python.exe') : win32.join(folder, 'Scripts', 'python.exe');
}

/** `dslint`, and the first Python: programs of a user need not be on the path. */
function onPath(around: Surroundings, paths: PlatformPath): Candidate[] {
  const isWindows = around.platform === 'win32';
  const value = around.environment['PATH'] ?? around.environment['Path'] ?? '';
  // A relative entry means another folder wherever a program runs.
  const entries = value.split(isWindows ? ';' : ':').filter((entry) => paths.isAbsolute(entry));
  const which = (names: string[]): string | undefined =>
    entries
      .flatMap((entry) => names.map((name) => paths.join(entry, name)))
      .find((file) => around.exists(file) && isAllowed(file, around));
  const program = which(isWindows ? ['dslint.exe'] : ['dslint']);
  const python = which(isWindows ? ['python.exe'] : ['python3', 'python']);
  const found: Candidate[] = [];
  if (program !== undefined) {
    found.push({ origin: 'PATH', command: program, arguments: [], isChosen: false });
  }
  if (python !== undefined) {
    found.push({ origin: 'Python on PATH', command: python, arguments: MODULE, isChosen: false });
  }
  return found;
}

/** The workspace is trusted, or the program lies outside of it. */
function isAllowed(program: string, around: Surroundings): boolean {
  if (around.isTrusted) {
    return true;
  }
  const paths = pathsOf(around.platform);
  return around.folders.every((folder) => {
    const way = paths.relative(folder, program);
    // On Windows there is no way to another drive.
    return way === '..' || way.startsWith(`..${paths.sep}`) || paths.isAbsolute(way);
  });
}

/** Ask a candidate whether it can serve. */
export async function check(candidate: Candidate, run: Run): Promise<Verdict> {
  const { code, stdout, stderr } = await run(candidate.command, [...candidate.arguments, 'server', '--check']);
  const version = /^dslint (\d\S*) can serve/m.exec(stdout)?.[1];
  const text = (stderr.trim() || stdout.trim()).split('\n').slice(-1)[0] ?? '';
  if (code === 0 && version !== undefined) {
    return { kind: 'ready', version };
  }
  if (/the server needs pygls/.test(stderr)) {
    return { kind: 'without-pygls' };
  }
  if (/No module named '?dslint\b/.test(stderr)) {
    return { kind: 'absent' };
  }
  if (code === undefined) {
    return { kind: 'broken', text: text || 'it does not start' };
  }
  // On PyPI the name `dslint` belongs to another project.
  return { kind: 'other-program', text: text || `it ended with exit code ${code}` };
}

/** The first that serves; the others are not asked. */
export async function find(places: readonly Candidate[], run: Run): Promise<Found> {
  const failed: Tried[] = [];
  for (const candidate of places) {
    const verdict = await check(candidate, run);
    if (verdict.kind === 'ready') {
      return { ready: { candidate, verdict }, failed };
    }
    failed.push({ candidate, verdict });
  }
  return { ready: undefined, failed };
}

/** The settings of the extension: which the server is told of, and which decide how it starts. */

/** What `initializationOptions` and `workspace/didChangeConfiguration` may hold (docs/editor.md, "Wishes of the client"). */
export const WISHES = [
  'select',
  'ignore',
  'extendSelect',
  'extendIgnore',
  'minSeverity',
  'minConfidence',
  'deepspeedVersion',
  'transformersVersion',
  'accelerateVersion',
  'worldSize',
  'nnodes',
  'nprocPerNode',
  'exclude',
  'extendExclude',
  'perFileIgnores',
  'codeLens',
  'inlayHints',
  'config',
  'isolated',
] as const;

/** A change of one of these needs another server. */
export const STARTING = ['enable', 'path', 'interpreter', 'logFile'] as const;

export interface Starting {
  enable: boolean;
  path: string;
  interpreter: string;
  logFile: string;
}

export type Get = (name: string) => unknown;

/** What is set, without what is empty: there the settings files of the project count. */
export function wishesOf(get: Get): Record<string, unknown> {
  const found: Record<string, unknown> = {};
  for (const name of WISHES) {
    const value = get(name);
    if (!isEmpty(value)) {
      found[name] = value;
    }
  }
  return found;
}

function isEmpty(value: unknown): boolean {
  if (value === undefined || value === null || value === '') {
    return true;
  }
  return typeof value === 'object' && Object.keys(value).length === 0;
}

/** What decides how the server starts; what is no text or truth is as if it were not there. */
export function startingOf(get: Get): Starting {
  const text = (name: string): string => {
    const value = get(name);
    return typeof value === 'string' ? value.trim() : '';
  };
  return {
    enable: get('enable') !== false,
    path: text('path'),
    interpreter: text('interpreter'),
    logFile: text('logFile'),
  };
}

/** What a change of settings asks for. */
export function consequenceOf(isAffected: (section: string) => boolean): 'nothing' | 'tell' | 'restart' {
  if (STARTING.some((name) => isAffected(`dslint.${name}`))) {
    return 'restart';
  }
  return WISHES.some((name) => isAffected(`dslint.${name}`)) ? 'tell' : 'nothing';
}

/** `~`, `${workspaceFolder}`, `${userHome}` and `${env:NAME}` in a path; a relative one stands in the first folder. */
export function expand(
  value: string,
  folders: readonly string[],
  environment: Readonly<Record<string, string | undefined>>,
  join: (...parts: string[]) => string,
): string {
  const home = environment['HOME'] ?? environment['USERPROFILE'] ?? '~';
  const folder = folders[0] ?? '';
  const filled = value
    .replace(/^~(?=$|[\\/])/, () => home)
    .replace(/\$\{workspaceFolder\}/g, () => folder)
    .replace(/\$\{userHome\}/g, () => home)
    .replace(/\$\{env:([^}]+)\}/g, (_, name: string) => environment[name] ?? '');
  const isRelative = /[\\/]/.test(filled) && !/^([\\/]|[A-Za-z]:)/.test(filled);
  return isRelative && folder ? join(folder, filled) : filled;
}

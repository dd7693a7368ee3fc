/** What to tell somebody for whom no server was found: one sentence, and the commands that install one. */
import type { Candidate, Found, Tried } from './find';

export const REQUIREMENT = "'deepspeed-lint[server]'";

export interface Advice {
  message: string;
  /** Lines for a shell; none where installing does not help. */
  commands: string[];
}

/** `isMadeByUv` says of an interpreter whether uv has made its environment, which then has no pip. */
export function adviceFor(found: Found, folder: string | undefined, isMadeByUv: (python: string) => boolean): Advice {
  const tried = worthMending(found.failed);
  if (tried === undefined) {
    return { message: 'dslint is not installed.', commands: fresh(folder) };
  }
  const { candidate, verdict } = tried;
  const python = candidate.python;
  const where = `${candidate.command} (${candidate.origin})`;
  const install = python === undefined ? [] : installInto(python, isMadeByUv(python));
  switch (verdict.kind) {
    case 'absent':
      return { message: `dslint is not installed in ${where}.`, commands: install };
    case 'without-pygls':
      return { message: `dslint of ${where} lacks pygls, which its server needs.`, commands: install.length ? install : beside(candidate) };
    case 'other-program':
      return { message: `${where} is not this dslint, or too old: ${verdict.text}`, commands: install.length ? install : fresh(folder) };
    default:
      return { message: `${where} does not run: ${verdict.kind === 'broken' ? verdict.text : ''}`, commands: [] };
  }
}

/** What a setting names; else the first environment of the project; else dslint without its server. */
function worthMending(failed: readonly Tried[]): Tried | undefined {
  return (
    failed.find(({ candidate }) => candidate.isChosen) ??
    failed.find(({ candidate, verdict }) => candidate.python !== undefined && verdict.kind !== 'broken') ??
    failed.find(({ verdict }) => verdict.kind === 'without-pygls')
  );
}

function installInto(python: string, isMadeByUv: boolean): string[] {
  return [
    isMadeByUv
      ? `uv pip install --python ${quoted(python)} ${REQUIREMENT}`
      : `${quoted(python)} -m pip install ${REQUIREMENT}`,
  ];
}

/** A program without its interpreter: the environment has one beside it. */
function beside(candidate: Candidate): string[] {
  return [`${quoted(candidate.command.replace(/[^\\/]+$/, 'python'))} -m pip install ${REQUIREMENT}`];
}

function fresh(folder: string | undefined): string[] {
  const go = folder === undefined ? [] : [`cd ${quoted(folder)}`];
  return [...go, 'python3 -m venv .venv', `.venv/bin/python -m pip install ${REQUIREMENT}`];
}

/** A word for a shell. */
export function quoted(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replace(/'/g, `'\\''`)}'`;
}

/** Running the programs that may be dslint. */
import { spawn } from 'node:child_process';
import { accessSync, constants, readFileSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { Run } from './find';

const MILLISECONDS = 20_000;
const MOST_TEXT = 100_000;

/**
 * The environment of a child: all of ours, and one wish. Python puts the working directory before all modules for `-m`,
 * and a workspace may hold a `json.py`: 3.11 and newer do not with it; older ones run in a folder of ours.
 */
export function environment(): NodeJS.ProcessEnv {
  return { ...process.env, PYTHONSAFEPATH: '1' };
}

/** Programs run in `folder`; what takes too long is ended. */
export function runIn(folder: string, milliseconds = MILLISECONDS): Run {
  return (command, args) =>
    new Promise((resolve) => {
      const child = spawn(command, args, {
        cwd: folder,
        env: environment(),
        stdio: ['ignore', 'pipe', 'pipe'],
        windowsHide: true,
      });
      let stdout = '';
      let stderr = '';
      const late = setTimeout(() => {
        stderr += `\nno answer within ${milliseconds / 1000} s`;
        child.kill('SIGKILL');
        end(undefined);
      }, milliseconds);
      const end = (code: number | undefined): void => {
        clearTimeout(late);
        resolve({ code, stdout, stderr });
      };
      child.stdout.on('data', (data: Buffer) => (stdout = (stdout + data.toString()).slice(-MOST_TEXT)));
      child.stderr.on('data', (data: Buffer) => (stderr = (stderr + data.toString()).slice(-MOST_TEXT)));
      child.on('error', (error) => {
        stderr += error.message;
        end(undefined);
      });
      child.on('close', (code) => end(code ?? undefined));
    });
}

/** The path is a file that may be run. */
export function isProgram(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return statSync(path).isFile();
  } catch {
    return false;
  }
}

/** uv has made the environment of an interpreter: such a one has no pip. */
export function isMadeByUv(python: string): boolean {
  try {
    return /^uv\s*=/m.test(readFileSync(join(dirname(dirname(python)), 'pyvenv.cfg'), 'utf8'));
  } catch {
    return false;
  }
}

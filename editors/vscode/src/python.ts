/** The interpreter that the Python extension has chosen, where that extension is there. */
import type { PythonExtension } from '@vscode/python-extension';
import * as vscode from 'vscode';

const ID = 'ms-python.python';

type Api = Pick<PythonExtension, 'environments'>;

async function api(): Promise<Api | undefined> {
  const extension = vscode.extensions.getExtension<Partial<Api> | undefined>(ID);
  if (extension === undefined) {
    return undefined;
  }
  try {
    const found = extension.isActive ? extension.exports : await extension.activate();
    // Versions before 2023 have another interface.
    return found?.environments === undefined ? undefined : { environments: found.environments };
  } catch {
    return undefined;
  }
}

/** The path of the interpreter, `undefined` where none is chosen. */
export async function selectedPython(folder: vscode.Uri | undefined): Promise<string | undefined> {
  const found = await api();
  if (found === undefined) {
    return undefined;
  }
  try {
    const environment = await found.environments.resolveEnvironment(found.environments.getActiveEnvironmentPath(folder));
    return environment?.executable.uri?.fsPath;
  } catch {
    return undefined;
  }
}

/** Hear of another choice; does nothing without the Python extension. */
export async function onSelection(changed: () => void): Promise<vscode.Disposable | undefined> {
  return (await api())?.environments.onDidChangeActiveEnvironmentPath(changed);
}

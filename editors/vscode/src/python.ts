/** The interpreter that the Python extension has chosen, where that extension is there. */
import * as vscode from 'vscode';

const ID = 'ms-python.python';

/** The part of the extension's interface that is used; `@vscode/python-extension` describes all of it. */
interface PythonApi {
  environments: {
    getActiveEnvironmentPath(resource?: vscode.Uri): { path: string };
    resolveEnvironment(path: { path: string }): Promise<{ executable: { uri?: vscode.Uri } } | undefined>;
    onDidChangeActiveEnvironmentPath: vscode.Event<unknown>;
  };
}

async function api(): Promise<PythonApi | undefined> {
  const extension = vscode.extensions.getExtension<PythonApi>(ID);
  if (extension === undefined) {
    return undefined;
  }
  try {
    const found = extension.isActive ? extension.exports : await extension.activate();
    // Versions before 2023 have another interface.
    return typeof found?.environments?.getActiveEnvironmentPath === 'function' ? found : undefined;
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

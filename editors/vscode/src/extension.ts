/** The extension: finds the server, keeps one running, and offers commands around it. */
import { mkdir } from 'node:fs/promises';
import * as vscode from 'vscode';
import { registerCommands } from './commands';
import { registerPages } from './pages';
import { onSelection } from './python';
import { Server } from './server';
import { consequenceOf } from './settings';

let server: Server | undefined;

export async function activate(context: vscode.ExtensionContext): Promise<void> {
  const output = vscode.window.createOutputChannel('dslint', { log: true });
  const folder = context.globalStorageUri.fsPath;
  await mkdir(folder, { recursive: true });
  const made = new Server(output, folder);
  server = made;
  context.subscriptions.push(output, made, registerPages(), ...registerCommands(made, output));
  context.subscriptions.push(
    vscode.workspace.onDidChangeConfiguration((event) => {
      const consequence = consequenceOf((section) => event.affectsConfiguration(section));
      if (consequence === 'restart') {
        void made.restart();
      } else if (consequence === 'tell') {
        void made.tell();
      }
    }),
    vscode.workspace.onDidGrantWorkspaceTrust(() => void made.restart()),
    // With the first folder comes an environment in which the server may be; the others are told by the client.
    vscode.workspace.onDidChangeWorkspaceFolders(() => void (made.isRunning || made.restart())),
  );
  await made.restart();
  const selection = await onSelection(() => void made.restart());
  if (selection !== undefined) {
    context.subscriptions.push(selection);
  }
}

export async function deactivate(): Promise<void> {
  await server?.end();
}

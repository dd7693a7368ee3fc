/**
 * The pages of the rules. The server writes them as files outside of the workspace, which VS Code would ask about
 * before it opens them; as documents of our own they open at once, as a preview.
 */
import { readFile } from 'node:fs/promises';
import * as vscode from 'vscode';
import { isPage } from './pagenames';

const SCHEME = 'dslint-page';

/** The same page under our scheme; other addresses stay what they are. */
export function pageOf(uri: vscode.Uri): vscode.Uri {
  return uri.scheme === 'file' && isPage(uri.path) ? uri.with({ scheme: SCHEME }) : uri;
}

/** Show a page beside the code. */
export async function openPage(uri: vscode.Uri): Promise<void> {
  try {
    await vscode.commands.executeCommand('markdown.showPreview', uri);
  } catch {
    await vscode.window.showTextDocument(uri, { preview: true });
  }
}

/** The rules of the diagnostics have pages that open in the window. */
export function withPages(diagnostics: readonly vscode.Diagnostic[]): void {
  for (const diagnostic of diagnostics) {
    const code = diagnostic.code;
    if (typeof code === 'object') {
      diagnostic.code = { value: code.value, target: pageOf(code.target) };
    }
  }
}

/** Read pages for the window. */
export function registerPages(): vscode.Disposable {
  return vscode.workspace.registerTextDocumentContentProvider(SCHEME, {
    provideTextDocumentContent: async (uri) =>
      isPage(uri.path) ? readFile(uri.with({ scheme: 'file' }).fsPath, 'utf8') : 'There is no such page.',
  });
}

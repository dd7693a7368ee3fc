/** What a launch command starts, in an editor beside it: a message of VS Code would run its lines together. */
import * as vscode from 'vscode';
import { plainOf } from './plantext';

const SCHEME = 'dslint-plan';
/** The command of the lenses; its arguments are a URI, a line and a character. */
export const PLAN = 'dslint.plan';

export class Plans implements vscode.Disposable {
  private readonly texts = new Map<string, string>();
  private readonly changed = new vscode.EventEmitter<vscode.Uri>();
  private readonly registration = vscode.workspace.registerTextDocumentContentProvider(SCHEME, {
    onDidChange: this.changed.event,
    provideTextDocumentContent: (uri) => this.texts.get(uri.toString()) ?? '',
  });

  /** Show the plan that a hover of the server holds. */
  async show(file: string, line: number, markdown: string): Promise<void> {
    const name = `Plan of ${vscode.Uri.parse(file).path.split('/').at(-1) ?? ''}:${line + 1}`;
    const uri = vscode.Uri.from({ scheme: SCHEME, path: `/${name}` });
    this.texts.set(uri.toString(), plainOf(markdown));
    this.changed.fire(uri);
    await vscode.window.showTextDocument(uri, { viewColumn: vscode.ViewColumn.Beside, preserveFocus: true, preview: true });
  }

  dispose(): void {
    this.registration.dispose();
    this.changed.dispose();
  }
}

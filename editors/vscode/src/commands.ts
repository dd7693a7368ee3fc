/** The commands of the palette. */
import * as vscode from 'vscode';
import type { Server } from './server';

const WHY = 'dslint.why';
const FIX_ALL = 'source.fixAll.dslint';

export function registerCommands(server: Server, output: vscode.LogOutputChannel): vscode.Disposable[] {
  const register = (name: string, run: () => unknown): vscode.Disposable => vscode.commands.registerCommand(name, run);
  return [
    register('dslint.restart', () => server.restart(true)),
    register('dslint.showOutput', () => output.show()),
    register('dslint.openSettings', () => vscode.commands.executeCommand('workbench.action.openSettings', 'dslint.')),
    register('dslint.openRulePage', () => openRulePage(server)),
    register('dslint.fixAll', () => fixAll()),
    register('dslint.copyInstallCommands', () => copyInstallCommands(server)),
  ];
}

/** The page of a rule: of one that is reported in the editor, or of a code that is typed. */
async function openRulePage(server: Server): Promise<void> {
  const reported = await reportedRule();
  const code = reported === ANOTHER ? await typedRule() : reported;
  if (code !== undefined && !(await server.command(WHY, [code]))) {
    void vscode.window.showWarningMessage('dslint does not run. "dslint: Show Output" says why.');
  }
}

const ANOTHER = 'Another rule…';

/** One of the rules that are reported in the editor, or `ANOTHER`; `undefined` where the user has thought better of it. */
async function reportedRule(): Promise<string | undefined> {
  const editor = vscode.window.activeTextEditor;
  const found = editor === undefined ? [] : vscode.languages.getDiagnostics(editor.document.uri);
  const line = editor?.selection.active.line ?? 0;
  const distance = (one: vscode.Diagnostic): number => Math.abs(one.range.start.line - line);
  const items = new Map<string, vscode.QuickPickItem>();
  for (const diagnostic of found.filter((one) => one.source === 'dslint').sort((a, b) => distance(a) - distance(b))) {
    const code = codeOf(diagnostic);
    if (code !== undefined && !items.has(code)) {
      items.set(code, { label: code, detail: diagnostic.message.split('\n', 1).join() });
    }
  }
  if (items.size === 0) {
    return ANOTHER;
  }
  const picked = await vscode.window.showQuickPick([...items.values(), { label: ANOTHER }], { title: 'Page of a rule' });
  return picked?.label;
}

function codeOf(diagnostic: vscode.Diagnostic): string | undefined {
  const code = typeof diagnostic.code === 'object' ? diagnostic.code.value : diagnostic.code;
  return code === undefined ? undefined : String(code);
}

async function typedRule(): Promise<string | undefined> {
  const typed = await vscode.window.showInputBox({
    title: 'Page of a rule',
    placeHolder: 'DSL101',
    validateInput: (text) => (/^\s*DSL\d{3}\s*$/i.test(text) ? undefined : 'The code of a rule, such as DSL101'),
  });
  return typed?.trim().toUpperCase();
}

async function fixAll(): Promise<void> {
  await vscode.commands.executeCommand('editor.action.codeAction', { kind: FIX_ALL, apply: 'first' });
}

async function copyInstallCommands(server: Server): Promise<void> {
  const commands = server.advice?.commands ?? [];
  if (commands.length === 0) {
    void vscode.window.showInformationMessage('There is nothing to install: "dslint: Show Output" says what runs.');
    return;
  }
  await vscode.env.clipboard.writeText(`${commands.join('\n')}\n`);
  void vscode.window.showInformationMessage('Copied. Run it in a terminal, then "dslint: Restart Server".');
}

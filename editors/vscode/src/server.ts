/** The one server of the window: looked for, started, told of settings, started anew, ended. */
import { platform } from 'node:os';
import { join } from 'node:path';
import * as vscode from 'vscode';
import { candidates, find, type Candidate, type Found } from './find';
import { documentSelector } from './files';
import { adviceFor, type Advice } from './install';
import { Plans } from './plans';
import { isMadeByUv, isProgram, runIn } from './programs';
import { selectedPython } from './python';
import { Session } from './session';
import { expand, startingOf, wishesOf } from './settings';

const COPY = 'Copy Install Commands';
const SETTINGS = 'Open Settings';
const OUTPUT = 'Show Output';
const RESTART = 'Restart';

export class Server implements vscode.Disposable {
  private session: Session | undefined;
  private work: Promise<void> = Promise.resolve();
  private readonly status: vscode.LanguageStatusItem;
  private readonly plans = new Plans();
  private said = '';
  /** What to do about a server that was not found. */
  advice: Advice | undefined;

  constructor(
    private readonly output: vscode.LogOutputChannel,
    private readonly folder: string,
  ) {
    this.status = vscode.languages.createLanguageStatusItem('dslint', documentSelector());
    this.status.name = 'dslint';
    this.status.command = { title: OUTPUT, command: 'dslint.showOutput' };
  }

  get isRunning(): boolean {
    return this.session?.isRunning === true;
  }

  /** End the server and look for one anew; one restart after the other. */
  restart(isAsked = false): Promise<void> {
    if (isAsked) {
      this.said = '';
    }
    this.work = this.work.then(() => this.begin()).catch((error: unknown) => this.output.error(String(error)));
    return this.work;
  }

  /** Tell the server of settings. */
  async tell(): Promise<void> {
    await this.session?.tell();
  }

  /** Have the server do one of its commands; false where none runs. */
  async command(command: string, args: unknown[]): Promise<boolean> {
    if (this.session?.isRunning !== true) {
      return false;
    }
    await this.session.command(command, args);
    return true;
  }

  async end(): Promise<void> {
    const ended = this.session;
    this.session = undefined;
    await ended?.end();
  }

  dispose(): void {
    this.status.dispose();
    this.plans.dispose();
    void this.end();
  }

  private async begin(): Promise<void> {
    await this.end();
    if (!startingOf(get).enable) {
      this.show('off', 'dslint.enable is false', vscode.LanguageStatusSeverity.Information);
      return;
    }
    this.status.busy = true;
    this.show('looking for the server', '', vscode.LanguageStatusSeverity.Information);
    try {
      const found = await this.look();
      if (found.ready === undefined) {
        this.missing(found);
      } else {
        await this.serve(found.ready.candidate, found.ready.verdict.version);
      }
    } finally {
      this.status.busy = false;
    }
  }

  private async look(): Promise<Found> {
    const { path, interpreter } = startingOf(get);
    const places = candidates({
      path,
      interpreter,
      folders: paths(),
      environment: process.env,
      selectedPython: await selectedPython(vscode.workspace.workspaceFolders?.[0]?.uri),
      isTrusted: vscode.workspace.isTrusted,
      platform: platform(),
      exists: isProgram,
    });
    const found = await find(places, runIn(this.folder));
    for (const { candidate, verdict } of found.failed) {
      const why = 'text' in verdict ? `${verdict.kind}: ${verdict.text}` : verdict.kind;
      this.output.info(`${candidate.command} (${candidate.origin}): ${why}`);
    }
    return found;
  }

  private missing(found: Found): void {
    const advice = adviceFor(found, paths()[0], isMadeByUv);
    this.advice = advice;
    if (!vscode.workspace.isTrusted) {
      advice.message += ' In Restricted Mode nothing of the workspace is run.';
    }
    this.output.warn([advice.message, ...advice.commands].join('\n  '));
    this.show('not found', advice.message, vscode.LanguageStatusSeverity.Error);
    const buttons = advice.commands.length > 0 ? [COPY, RESTART, SETTINGS] : [RESTART, SETTINGS];
    this.say(advice.message, buttons);
  }

  private async serve(candidate: Candidate, version: string): Promise<void> {
    this.advice = undefined;
    this.output.info(`dslint ${version}: ${candidate.command} (${candidate.origin})`);
    const session = new Session({
      candidate,
      logFile: expand(startingOf(get).logFile, paths(), process.env, join),
      folder: this.folder,
      output: this.output,
      plans: this.plans,
      wishes: () => wishesOf(get),
      lost: (text) => {
        this.output.error(text);
        this.show('stopped', text, vscode.LanguageStatusSeverity.Error);
        this.say(`dslint: ${text}.`, [OUTPUT, RESTART]);
      },
    });
    this.session = session;
    if (await session.begin()) {
      this.show(version, candidate.command, vscode.LanguageStatusSeverity.Information);
    }
  }

  private show(text: string, detail: string, severity: vscode.LanguageStatusSeverity): void {
    this.status.text = `dslint ${text}`;
    this.status.detail = detail;
    this.status.severity = severity;
  }

  /** Say a sentence once, until the user asks for a restart. */
  private say(text: string, buttons: string[]): void {
    if (text === this.said) {
      return;
    }
    this.said = text;
    void vscode.window.showErrorMessage(text, ...buttons).then((button) => {
      const command = {
        [COPY]: 'dslint.copyInstallCommands',
        [RESTART]: 'dslint.restart',
        [OUTPUT]: 'dslint.showOutput',
        [SETTINGS]: 'dslint.openSettings',
      }[button ?? ''];
      return command === undefined ? undefined : vscode.commands.executeCommand(command);
    });
  }
}

function get(name: string): unknown {
  return vscode.workspace.getConfiguration('dslint').get(name);
}

/** The folders of the workspace that are on disk. */
function paths(): string[] {
  const folders = vscode.workspace.workspaceFolders ?? [];
  return folders.filter((folder) => folder.uri.scheme === 'file').map((folder) => folder.uri.fsPath);
}

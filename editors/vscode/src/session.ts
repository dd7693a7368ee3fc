/** One server and the client that speaks with it, from its start to its end. */
import * as vscode from 'vscode';
import {
  CloseAction,
  DidChangeConfigurationNotification,
  ErrorAction,
  LanguageClient,
  RevealOutputChannelOn,
  TransportKind,
  type LanguageClientOptions,
} from 'vscode-languageclient/node';
import type { Candidate } from './find';
import { documentSelector } from './files';
import { PLAN, type Plans } from './plans';
import { openPage, pageOf, withPages } from './pages';
import { environment } from './programs';
import { Restarts } from './restarts';

export interface Start {
  candidate: Candidate;
  logFile: string;
  /** Where the server begins to run: a folder that holds no Python modules. */
  folder: string;
  output: vscode.LogOutputChannel;
  plans: Plans;
  wishes: () => Record<string, unknown>;
  /** The server has ended too often, or could not begin; said once. */
  lost: (text: string) => void;
}

export class Session {
  private readonly client: LanguageClient;
  private readonly restarts = new Restarts();
  private isLost = false;

  constructor(private readonly start: Start) {
    const { candidate, logFile, folder } = start;
    const log = logFile === '' ? [] : ['--log', logFile];
    const executable = {
      command: candidate.command,
      args: [...candidate.arguments, 'server', ...log],
      transport: TransportKind.stdio,
      options: { cwd: folder, env: environment() },
    };
    this.client = new LanguageClient('dslint', 'dslint', executable, this.options());
  }

  /** Start the server; what goes wrong is said by `lost`. */
  async begin(): Promise<boolean> {
    try {
      await this.client.start();
      return true;
    } catch (error) {
      this.lose(`the server did not start: ${error instanceof Error ? error.message : String(error)}`);
      return false;
    }
  }

  /** Tell the server of settings: what it shows changes, and it goes on. */
  async tell(): Promise<void> {
    if (this.client.isRunning()) {
      await this.client.sendNotification(DidChangeConfigurationNotification.type, { settings: this.start.wishes() });
    }
  }

  /** Have the server do one of its commands. */
  async command(command: string, args: unknown[]): Promise<void> {
    await this.client.sendRequest('workspace/executeCommand', { command, arguments: args });
  }

  get isRunning(): boolean {
    return this.client.isRunning();
  }

  async end(): Promise<void> {
    // From now on its end is wanted.
    this.isLost = true;
    try {
      await this.client.dispose(5_000);
    } catch (error) {
      this.start.output.debug(`the end of the server: ${String(error)}`);
    }
  }

  private lose(text: string): void {
    if (!this.isLost) {
      this.isLost = true;
      this.start.lost(text);
    }
  }

  private options(): LanguageClientOptions {
    return {
      documentSelector: documentSelector(),
      diagnosticCollectionName: 'dslint',
      outputChannel: this.start.output,
      revealOutputChannelOn: RevealOutputChannelOn.Never,
      initializationOptions: this.start.wishes,
      // `lost` says it, with a button.
      initializationFailedHandler: () => false,
      errorHandler: {
        error: () => ({ action: ErrorAction.Continue, handled: true }),
        closed: () => this.closed(),
      },
      middleware: {
        handleDiagnostics: (uri, diagnostics, next) => {
          withPages(diagnostics);
          next(uri, diagnostics);
        },
        executeCommand: async (command, args, next): Promise<unknown> =>
          command === PLAN && (await this.showPlan(args)) ? undefined : next(command, args),
        window: {
          showDocument: async (params, token, next) => {
            const uri = this.client.protocol2CodeConverter.asUri(params.uri);
            const page = pageOf(uri);
            if (page === uri) {
              return next(params, token);
            }
            await openPage(page);
            return { success: true };
          },
        },
      },
    };
  }

  /** The plan of the command at a place; false where the server says none. */
  private async showPlan([uri, line, character]: unknown[]): Promise<boolean> {
    if (typeof uri !== 'string' || typeof line !== 'number' || typeof character !== 'number') {
      return false;
    }
    const params = { textDocument: { uri }, position: { line, character } };
    const found = await this.client.sendRequest<{ contents: { value?: string } } | null>('textDocument/hover', params);
    if (found?.contents.value === undefined) {
      return false;
    }
    await this.start.plans.show(uri, line, found.contents.value);
    return true;
  }

  private closed(): { action: CloseAction; handled: boolean } {
    if (this.isLost) {
      return { action: CloseAction.DoNotRestart, handled: true };
    }
    if (this.client.initializeResult === undefined) {
      this.lose('the server ended before it was ready');
      return { action: CloseAction.DoNotRestart, handled: true };
    }
    if (this.restarts.allows(Date.now())) {
      this.start.output.warn('the server has ended; it starts again');
      return { action: CloseAction.Restart, handled: true };
    }
    this.lose('the server has ended four times within three minutes and stays away');
    return { action: CloseAction.DoNotRestart, handled: true };
  }
}

/** What is tried in the front end, one scene after the other, each in a copy of the incident of its own. */
import { execFileSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, readlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const CONFIG = 'scripts/zero2.json';

/** Open a file by its name, as people do. */
async function open(page, name) {
  await page.keyboard.press('Control+P');
  await page.waitForSelector('.quick-input-widget input:visible');
  await page.keyboard.type(name);
  await page.waitForSelector(`.quick-input-list .monaco-list-row:has-text("${name.split('/').at(-1)}")`);
  await page.waitForTimeout(400);
  await page.keyboard.press('Enter');
  await page.waitForSelector(`.tab.active:has-text("${name.split('/').at(-1)}")`);
}

async function until(page, isDone) {
  const end = Date.now() + 60_000;
  while (!(await isDone())) {
    if (Date.now() > end) {
      throw new Error('too late');
    }
    await page.waitForTimeout(200);
  }
}

/** A preview shows a text: it stands in frames of its own. */
async function preview(page, text) {
  const isThere = async (frame) => ((await frame.textContent('body', { timeout: 1_000 }).catch(() => '')) ?? '').includes(text);
  await until(page, async () => (await Promise.all(page.frames().map(isThere))).includes(true));
}

/** Run a command of the palette by its title. */
async function command(page, title) {
  await page.keyboard.press('F1');
  await page.waitForSelector('.quick-input-widget input:visible');
  await page.keyboard.type(title);
  await page.waitForSelector(`.quick-input-list .monaco-list-row:has-text("${title}")`);
  await page.waitForTimeout(300);
  await page.keyboard.press('Enter');
}

async function goTo(page, line, column) {
  await page.keyboard.press('Control+G');
  await page.waitForSelector('.quick-input-widget input:visible');
  await page.keyboard.type(`${line}:${column}`);
  await page.keyboard.press('Enter');
  await page.waitForTimeout(200);
}

/** Show the hover of the cursor, where a server may still begin; returns the beginning of its text. */
async function hover(page, text) {
  const wanted = `.monaco-hover:visible:has-text("${text}")`;
  await until(page, async () => {
    await page.keyboard.press('Control+K');
    await page.keyboard.press('Control+I');
    await page.waitForTimeout(1_500);
    return (await page.locator(wanted).count()) > 0;
  });
  const shown = await page.waitForSelector(wanted);
  return (await shown.innerText()).slice(0, 90).replaceAll('\n', ' ');
}

const squiggle = (page) => page.waitForSelector('.squiggly-warning', { timeout: 60_000 });

/** Choose a code action by its title, with keys: the widget takes the mouse only once it has moved. */
async function choose(page, text) {
  const row = page.locator(`.action-widget .monaco-list-row:has-text("${text}")`);
  // Where the server is still reading, there are none at first.
  await until(page, async () => {
    if ((await row.count()) === 0) {
      await page.keyboard.press('Escape');
      await page.keyboard.press('Control+.');
      await page.waitForTimeout(2_000);
    }
    return (await row.count()) > 0;
  });
  for (let count = 0; count < 20; count += 1) {
    const focused = page.locator('.action-widget .monaco-list-row.focused');
    if ((await focused.count()) > 0 && (await focused.innerText()).includes(text)) {
      await page.keyboard.press('Enter');
      return;
    }
    await page.keyboard.press('ArrowDown');
    await page.waitForTimeout(100);
  }
  throw new Error(`no action ${text}`);
}

/** The servers that look at a folder, by what the kernel says of processes. */
function serversIn(folder) {
  const isServer = (pid) => {
    try {
      const words = readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0');
      return words.includes('server') && readlinkSync(`/proc/${pid}/cwd`) === folder;
    } catch {
      return false;
    }
  };
  return readdirSync('/proc').filter((name) => /^\d+$/.test(name) && isServer(name)).map(Number);
}

/** The message of the extension that holds a text. */
const message = (page, text) =>
  page.waitForSelector(`.notification-toast .notification-list-item:has-text("${text}")`, { timeout: 60_000 });

const gone = (page, selector) => page.waitForSelector(selector, { state: 'detached' });

export const SCENES = {
  incident: {
    async play({ page, step, folder, picture }) {
      await step('the config is underlined', async () => {
        await open(page, CONFIG);
        await squiggle(page);
      });
      await step('the problem is in the panel, with its other file', async () => {
        await page.keyboard.press('Control+Shift+M');
        await page.waitForSelector('.markers-panel .monaco-list-row:has-text("overlap_comm")');
      });
      await step('a hover tells what the key means, and why it is wrong', async () => {
        await page.click('.monaco-editor .view-line:has-text("overlap_comm")');
        await goTo(page, 19, 14);
        await hover(page, 'Attempts to overlap');
        await page.keyboard.press('Escape');
        await goTo(page, 19, 26);
        const said = await hover(page, 'DSL160');
        await page.screenshot({ path: picture, clip: { x: 348, y: 36, width: 932, height: 690 } });
        return said;
      });
      await step('quick fixes are offered, the unsafe one says so', async () => {
        await page.keyboard.press('Escape');
        await goTo(page, 19, 26);
        await page.keyboard.press('Control+.');
        await page.waitForSelector('.action-widget .monaco-list-row:has-text("unsafe")');
        return (await page.innerText('.action-widget')).replaceAll('\n', ' | ');
      });
      await step('the fix takes the problem away', async () => {
        await choose(page, 'unsafe');
        await page.waitForSelector('.squiggly-warning', { state: 'detached' });
        await page.keyboard.press('Control+S');
        let line = '';
        await until(page, () => {
          line = (readFileSync(join(folder, CONFIG), 'utf8').split('\n')[18] ?? '').trim();
          return line === '"overlap_comm": false,';
        });
        return line;
      });
    },
  },  rules: {
    async play({ page, step }) {
      await step('"Why?" opens the page of the rule as a preview', async () => {
        await open(page, CONFIG);
        await squiggle(page);
        await page.click('.monaco-editor .view-line:has-text("overlap_comm")');
        await goTo(page, 19, 26);
        await page.keyboard.press('Control+.');
        await choose(page, 'Why? DSL160');
        await page.waitForSelector('.tab.active:has-text("DSL160")');
        await preview(page, 'Why it hurts');
      });
      await step('the command asks which rule', async () => {
        await page.keyboard.press('Control+W');
        await command(page, 'dslint: Open Page of a Rule');
        await page.waitForSelector('.quick-input-list .monaco-list-row:has-text("DSL160")');
        await page.keyboard.press('Enter');
        await page.waitForSelector('.tab.active:has-text("DSL160")');
      });
      await step('the code in the panel opens the same page', async () => {
        await page.keyboard.press('Control+W');
        await page.keyboard.press('Control+Shift+M');
        await page.click('.markers-panel a:has-text("DSL160")', { modifiers: ['Control'] });
        await page.waitForSelector('.tab.active:has-text("DSL160")');
        await page.waitForTimeout(1000);
      });
    },
  },
  launch: {
    async play({ page, step, folder }) {
      await step('a launch command has a lens', async () => {
        await open(page, 'scripts/pretrain.sh');
        const lens = await page.waitForSelector('.codelens-decoration a', { timeout: 60_000 });
        return lens.innerText();
      });
      await step('the lens shows the plan', async () => {
        await page.click('.codelens-decoration a');
        await page.waitForSelector('.tab:has-text("Plan of pretrain.sh:9")');
        await page.waitForSelector('.view-line:has-text("1 node x 8 processes = 8 ranks")');
      });
      await step('settings change without a restart', async () => {
        mkdirSync(join(folder, '.vscode'), { recursive: true });
        writeFileSync(join(folder, '.vscode/settings.json'), '{"dslint.codeLens": false}');
        await gone(page, '.codelens-decoration a');
      });
    },
  },
  missing: {
    settings: () => ({ 'dslint.interpreter': '' }),
    prepare: (folder) => execFileSync('python3', ['-m', 'venv', '--without-pip', join(folder, '.venv')]),
    environment: () => ({ PATH: '/usr/bin:/bin', PYTHONPATH: '', VIRTUAL_ENV: '' }),
    async play({ page, step, folder }) {
      await step('where no server is, one message says how to install it', async () => {
        await open(page, CONFIG);
        const shown = await message(page, 'is not installed');
        return (await shown.innerText()).replaceAll('\n', ' | ');
      });
      await step('its button copies the commands', async () => {
        await page.click('.notification-toast .monaco-button:has-text("Copy Install Commands")');
        await message(page, 'Copied');
        const text = await page.evaluate(() => navigator.clipboard.readText());
        if (text !== `${folder}/.venv/bin/python -m pip install 'deepspeed-lint[server]'\n`) {
          throw new Error(text);
        }
        return text.trim();
      });
      await step('nothing more is said', async () => {
        await page.waitForTimeout(5_000);
        const count = await page.locator('.notification-toast:has-text("not installed")').count();
        if (count > 0) {
          throw new Error(`${count} messages`);
        }
      });
    },
  },
  crashes: {
    async play({ page, step, folder }) {
      await step('a server that is killed is started again', async () => {
        await open(page, CONFIG);
        await squiggle(page);
        await kill();
        await page.click('.monaco-editor .view-line:has-text("overlap_comm")');
        await goTo(page, 19, 14);
        return hover(page, 'Attempts to overlap');
      });
      await step('one that ends again and again is left alone, and said once', async () => {
        for (let count = 0; count < 3; count += 1) {
          await kill();
        }
        const shown = await message(page, 'stays away');
        return (await shown.innerText()).replaceAll('\n', ' | ');
      });
      await step('"Restart" begins anew', async () => {
        await page.click('.notification-toast .monaco-button:has-text("Restart")');
        await page.waitForTimeout(500);
        await squiggle(page);
      });
      /** End the server of this window, and no other. */
      async function kill() {
        await until(page, () => serversIn(folder).length === 1);
        const pids = serversIn(folder);
        process.kill(pids[0], 'SIGKILL');
        await until(page, () => !serversIn(folder).includes(pids[0]));
      }
    },
  },
  untrusted: {
    settings: () => ({ 'security.workspace.trust.enabled': true, 'dslint.interpreter': '' }),
    environment: () => ({ PATH: '/usr/bin:/bin', PYTHONPATH: '', VIRTUAL_ENV: '' }),
    prepare(folder) {
      mkdirSync(join(folder, '.venv/bin'), { recursive: true });
      const python = join(folder, '.venv/bin/python');
      writeFileSync(python, `#!/bin/sh\ntouch '${folder}/executed'\nexit 1\n`, { mode: 0o755 });
    },
    async play({ page, step, folder }) {
      const isExecuted = () => existsSync(join(folder, 'executed'));
      await step('in Restricted Mode nothing of the workspace is run', async () => {
        await page.click('.monaco-dialog-box .monaco-button:has-text("No, I don\'t trust")');
        await open(page, CONFIG);
        await message(page, 'In Restricted Mode nothing of the workspace is run.');
        if (isExecuted()) {
          throw new Error('the interpreter of the workspace was run');
        }
      });
      await step('with trust it is', async () => {
        await command(page, 'Workspaces: Manage Workspace Trust');
        await page.click('.workspace-trust-editor .monaco-button:has-text("Trust")');
        await page.waitForTimeout(6_000);
        if (!isExecuted()) {
          throw new Error('the interpreter of the workspace was not run');
        }
      });
    },
  },
  folders: {
    workspace(folder) {
      const other = `${folder}-other`;
      cpSync(folder, other, { recursive: true });
      writeFileSync(join(other, 'dslint.toml'), 'ignore = ["DSL160"]\n');
      writeFileSync(join(other, 'second.json'), '{"train_batch_size": 8, "zero_optimization": {"stage": 9}}\n');
      const file = `${folder}.code-workspace`;
      writeFileSync(file, JSON.stringify({ folders: [{ path: folder }, { path: other }] }));
      return file;
    },
    async play({ page, step, folder }) {
      await step('one server looks at both folders, each with its own settings', async () => {
        await open(page, 'second.json');
        await page.waitForSelector('.squiggly-error', { timeout: 60_000 });
        await page.keyboard.press('Control+Shift+M');
        await page.waitForSelector('.markers-panel .monaco-list-row:has-text("overlap_comm")');
        const files = await page.locator('.markers-panel .monaco-list-row:has-text("zero2.json")').count();
        if (files !== 1 || serversIn(folder).length !== 1) {
          throw new Error(`${files} files, ${serversIn(folder).length} servers`);
        }
      });
      await step('keys are completed', async () => {
        await page.click('.monaco-editor .view-line:has-text("train_batch_size")');
        await goTo(page, 1, 2);
        await page.keyboard.type('"train_micro');
        await page.keyboard.press('Control+Space');
        await page.waitForSelector('.suggest-widget .monaco-list-row:has-text("train_micro_batch_size_per_gpu")');
      });
    },
  },
  notebook: {
    prepare(folder) {
      const source = ['import torch.distributed as dist\n', '\n', 'if dist.get_rank() == 0:\n', '    dist.barrier()\n'];
      const cell = { cell_type: 'code', metadata: {}, outputs: [], execution_count: null, source };
      const notebook = { cells: [cell], metadata: { language_info: { name: 'python' } }, nbformat: 4, nbformat_minor: 5 };
      writeFileSync(join(folder, 'train.ipynb'), JSON.stringify(notebook));
    },
    async play({ page, step }) {
      await step('a cell is judged', async () => {
        await open(page, 'train.ipynb');
        await page.waitForSelector('.notebookOverlay .squiggly-error, .notebookOverlay .squiggly-warning', { timeout: 60_000 });
      });
      await step('"Ignore here" puts a comment into the cell', async () => {
        await page.click('.notebookOverlay .view-line:has-text("dist.barrier")');
        await page.keyboard.press('Control+.');
        await choose(page, 'Ignore DSL');
        await page.waitForSelector('.notebookOverlay .view-line:has-text("dslint: ignore")');
        await gone(page, '.notebookOverlay .squiggly-error, .notebookOverlay .squiggly-warning');
      });
    },
  },
};

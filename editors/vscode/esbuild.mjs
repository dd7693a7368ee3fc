// `node esbuild.mjs` bundles the extension into dist/, `node esbuild.mjs tests` the tests into out/.
import { copyFileSync, readdirSync, rmSync } from 'node:fs';
import { build } from 'esbuild';

const common = { bundle: true, platform: 'node', target: 'node20', format: 'cjs', logLevel: 'warning' };

if (process.argv[2] === 'tests') {
  rmSync('out', { recursive: true, force: true });
  const entryPoints = ['test/unit', 'test/e2e'].flatMap((folder) =>
    readdirSync(folder)
      .filter((name) => name.endsWith('.test.ts'))
      .map((name) => `${folder}/${name}`),
  );
  await build({ ...common, entryPoints, outdir: 'out', outbase: 'test', sourcemap: 'inline' });
} else {
  rmSync('dist', { recursive: true, force: true });
  await build({ ...common, entryPoints: ['src/extension.ts'], outdir: 'dist', external: ['vscode'], minify: true });
  // Part of the package; the original lies at the top of the repository.
  copyFileSync('../../LICENSE', 'LICENSE');
}

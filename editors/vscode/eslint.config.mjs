import tseslint from 'typescript-eslint';

export default tseslint.config(
  { ignores: ['dist/', 'out/', 'node_modules/'] },
  ...tseslint.configs.recommendedTypeChecked,
  {
    files: ['**/*.ts'],
    languageOptions: { parserOptions: { project: './tsconfig.json' } },
    rules: { '@typescript-eslint/no-floating-promises': ['error', { allowForKnownSafeCalls: ['test'] }] },
  },
  { files: ['**/*.mjs'], ...tseslint.configs.disableTypeChecked },
);

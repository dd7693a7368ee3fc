/** How the server names the files of its pages: `<cache>/pages/<version>/DSL101.md`. */
export function isPage(path: string): boolean {
  return /\/pages\/[^/]+\/DSL\d{3}\.md$/.test(path);
}

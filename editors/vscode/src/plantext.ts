/** The text inside of the fences of a Markdown block, else all of it. */
export function plainOf(markdown: string): string {
  return `${(/^```\w*\n([\s\S]*?)\n```\s*$/.exec(markdown)?.[1] ?? markdown).trimEnd()}\n`;
}

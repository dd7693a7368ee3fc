/** Which documents the server is told of. Their text decides there what they are. */
import files from './files.json';

export interface FileFilter {
  scheme: 'file';
  language?: string;
  pattern?: string;
}

export interface CellFilter {
  notebook: string;
  language: string;
}

const NOTEBOOK = 'jupyter-notebook';

/** The filters of the protocol: languages for files without a telling name, patterns for what no language is known for. */
export function documentSelector(): (FileFilter | CellFilter)[] {
  const byLanguage = files.languages.map((language): FileFilter => ({ scheme: 'file', language }));
  const patterns = [`**/*.{${files.suffixes.join(',')}}`, `**/{${files.names.join(',')}}`];
  const byName = patterns.map((pattern): FileFilter => ({ scheme: 'file', pattern }));
  const cells = ['python', 'markdown'].map((language): CellFilter => ({ notebook: NOTEBOOK, language }));
  return [...byLanguage, ...byName, ...cells];
}

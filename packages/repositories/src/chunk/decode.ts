/** The text of a file, or the reason for having no text. */
export type Decoded = { readonly text: string } | { readonly skipped: 'binary' | 'encoding' | 'empty' | 'lfs' }

const LFS = 'version https://git-lfs.github.com/spec/v1\n'

const BOMS = [
  { encoding: 'utf-8', bytes: [0xef, 0xbb, 0xbf] },
  { encoding: 'utf-16le', bytes: [0xff, 0xfe] },
  { encoding: 'utf-16be', bytes: [0xfe, 0xff] },
] as const

/**
 * The encodings that are tried after UTF-8, as a decoder's labels.
 * @throws RangeError for one that this Node doesn't know
 */
export function checkEncodings(encodings: readonly string[]): void {
  for (const encoding of encodings) {
    try {
      new TextDecoder(encoding)
    } catch {
      throw new RangeError(
        `encodings: expected labels such as 'euc-kr' or 'windows-1252', got ${JSON.stringify(encoding)}`,
      )
    }
  }
}

/**
 * Decodes a file: by its byte order mark, else as UTF-8, else in the first of these encodings that fits. One with a NUL is binary, as it is
 * for git; the pointer of a file in Git LFS isn't its text.
 */
export function decode(content: Uint8Array, encodings: readonly string[] = []): Decoded {
  if (content.length === 0) return { skipped: 'empty' }
  const marked = BOMS.find(({ bytes }) => bytes.every((byte, i) => content[i] === byte))
  if (!marked?.encoding.startsWith('utf-16') && content.includes(0)) return { skipped: 'binary' }
  for (const encoding of marked ? [marked.encoding] : ['utf-8', ...encodings]) {
    const text = decodedAs(encoding, content)
    if (text === undefined) continue
    if (text.includes('\0')) return { skipped: 'binary' }
    if (text.startsWith(LFS)) return { skipped: 'lfs' }
    return text.trim() === '' ? { skipped: 'empty' } : { text }
  }
  return { skipped: 'encoding' }
}

/** Undefined: it isn't in this encoding. A byte order mark is left out. */
function decodedAs(encoding: string, content: Uint8Array): string | undefined {
  try {
    return new TextDecoder(encoding, { fatal: true }).decode(content)
  } catch {
    return undefined
  }
}

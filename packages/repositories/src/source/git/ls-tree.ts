import type { TreeEntry } from '../source.js'

const NUL = 0
const TAB = 9
const QUOTE = 34

/**
 * Reads `git ls-tree -r -l -z --full-tree`: entries of `<mode> <type> <blob> <size>\t<path>`, each ended by NUL, because names may contain
 * line ends. @throws Error for any other line
 */
export async function* treeEntries(output: AsyncIterable<Buffer>): AsyncGenerator<TreeEntry> {
  let rest: Buffer = Buffer.alloc(0)
  for await (const chunk of output) {
    let bytes = rest.length === 0 ? chunk : Buffer.concat([rest, chunk])
    for (let end = bytes.indexOf(NUL); end !== -1; end = bytes.indexOf(NUL)) {
      yield treeEntry(bytes.subarray(0, end))
      bytes = bytes.subarray(end + 1)
    }
    rest = bytes
  }
  if (rest.length > 0) throw new Error(`git ls-tree ended in the middle of a line: ${rest.toString('latin1', 0, 100)}`)
}

function treeEntry(line: Buffer): TreeEntry {
  const tab = line.indexOf(TAB)
  const [, mode, blob, size] =
    /^(\d{6}) (?:blob|commit) ([0-9a-f]{40,64}) +(\d+|-)$/.exec(line.toString('latin1', 0, tab === -1 ? 0 : tab)) ?? []
  if (mode === undefined || blob === undefined)
    throw new Error(`expected a line of git ls-tree, got ${line.toString('latin1', 0, 100)}`)
  return {
    path: pathText(line.subarray(tab + 1)),
    // A copy: what a match gives keeps its whole line.
    blob: Buffer.from(blob, 'latin1').toString('latin1'),
    kind: kindOf(mode),
    bytes: size === '-' ? undefined : Number(size),
  }
}

/** The meaning of git's modes: 120000 a symlink, 160000 a submodule, 100644 and 100755 a file. */
export const kindOf = (mode: string): TreeEntry['kind'] =>
  mode === '120000' ? 'symlink' : mode === '160000' ? 'submodule' : 'file'

/**
 * A path as text. git's paths are bytes: one that isn't UTF-8 is shown in quotes with its odd bytes in octal (`"caf\351.txt"`), as git
 * shows it. A path that begins with a quote is shown so as well, so distinct paths have distinct texts.
 */
export function pathText(bytes: Buffer): string {
  const text = bytes.toString('utf8')
  if (bytes[0] !== QUOTE && (!text.includes('\uFFFD') || Buffer.from(text, 'utf8').equals(bytes))) return text
  let quoted = ''
  for (const byte of bytes) {
    const plain = byte >= 0x20 && byte < 0x7f && byte !== QUOTE && byte !== 0x5c
    quoted += plain ? String.fromCharCode(byte) : `\\${byte.toString(8).padStart(3, '0')}`
  }
  return `"${quoted}"`
}

import type { Blob } from '../source.js'

const LINE_END = 10

/** Reads the next bytes of a stream, in whatever pieces they come. */
class ByteReader {
  private buffered: Buffer = Buffer.alloc(0)
  private readonly chunks: AsyncIterator<Buffer>
  constructor(output: AsyncIterable<Buffer>) {
    this.chunks = output[Symbol.asyncIterator]()
  }

  private async more(): Promise<Buffer> {
    const { done, value } = await this.chunks.next()
    if (done) throw new Error('git cat-file ended in the middle of its output')
    return value
  }

  /** The next line without its end; undefined at the end of the output. */
  async line(): Promise<string | undefined> {
    for (;;) {
      const end = this.buffered.indexOf(LINE_END)
      if (end !== -1) {
        const line = this.buffered.toString('latin1', 0, end)
        this.buffered = this.buffered.subarray(end + 1)
        return line
      }
      if (this.buffered.length > 1_000) throw new Error('git cat-file: expected a header, got something longer')
      const { done, value } = await this.chunks.next()
      if (done) return undefined
      this.buffered = Buffer.concat([this.buffered, value])
    }
  }

  /** The next `count` bytes, in a buffer of their own. */
  async bytes(count: number): Promise<Buffer> {
    const parts: Buffer[] = []
    for (let left = count; left > 0; ) {
      if (this.buffered.length === 0) this.buffered = await this.more()
      const part = this.buffered.subarray(0, left)
      parts.push(part)
      this.buffered = this.buffered.subarray(part.length)
      left -= part.length
    }
    return Buffer.concat(parts)
  }

  /** Passes over `count` bytes, keeping none. */
  async skip(count: number): Promise<void> {
    for (let left = count; left > 0; ) {
      if (this.buffered.length === 0) this.buffered = await this.more()
      const part = Math.min(left, this.buffered.length)
      this.buffered = this.buffered.subarray(part)
      left -= part
    }
  }
}

/**
 * Reads `git cat-file --batch`: `<blob> blob <size>\n<content>\n`, or `<blob> missing\n`. Content above `maxBytes` is passed over.
 * @throws Error for a blob that is missing: a fetch brings a commit with all of its blobs, so the repository is damaged
 */
export async function* batchedBlobs(output: AsyncIterable<Buffer>, maxBytes: number): AsyncGenerator<Blob> {
  const reader = new ByteReader(output)
  for (let line = await reader.line(); line !== undefined; line = await reader.line()) {
    const [, blob, type, size] = /^([0-9a-f]{40,64}) (missing|blob|tree|commit|tag)(?: (\d+))?$/.exec(line) ?? []
    if (blob === undefined) throw new Error(`git cat-file: expected a header, got ${line.slice(0, 100)}`)
    if (type === 'missing') throw new Error(`the cached repository has lost blob ${blob}: it is fetched again`)
    const bytes = Number(size)
    if (type !== 'blob' || bytes > maxBytes) {
      await reader.skip(bytes + 1)
      yield { blob, missing: type === 'blob' ? 'too large' : 'gone' }
    } else {
      const content = await reader.bytes(bytes)
      await reader.skip(1)
      yield { blob, content }
    }
  }
}

import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { pythonWheel } from '../servers/python-wheel.mjs'
import { bpe } from './bpe.mjs'

const VERSION = '0.4.0.post1'

/** Installs wordllama (MIT) unless it is installed: a wheel of 19 MB, kept in the cache folder. Only its table is used. @throws WheelMissing */
export const installWordllama = () => pythonWheel('wordllama', VERSION)

/**
 * An embedder without a service or a graphics card, for tests and the demo only: the mean of the vectors that wordllama's table has for the tokens of a
 * text. 256 numbers, about 7 ms for 7,000 characters. It finds the right file for most plain questions about code.
 *
 * @throws WheelMissing when its wheel can't be installed
 */
export async function wordllama() {
  const { folder } = await installWordllama()
  const { table, dimensions } = await readTable(join(folder, 'wordllama/weights/l2_supercat_256.safetensors'))
  const file = join(folder, 'wordllama/tokenizers/l2_supercat_tokenizer_config.json')
  const tokens = bpe(JSON.parse(await readFile(file, 'utf8')).model)
  const vectorOf = (text) => {
    const vector = new Float32Array(dimensions)
    for (const id of tokens(text)) for (let d = 0; d < dimensions; d += 1) vector[d] += table[id * dimensions + d]
    const length = Math.hypot(...vector) || 1
    return vector.map((value) => value / length)
  }
  return { model: `wordllama-${VERSION}`, dimensions, embed: async (texts) => texts.map(vectorOf) }
}

/** The one tensor of a safetensors file: the length of the head, the head as JSON, numbers of 16 bits. */
async function readTable(path) {
  const file = await readFile(path)
  const headLength = Number(file.readBigUInt64LE(0))
  const head = JSON.parse(file.toString('utf8', 8, 8 + headLength))
  const [{ shape, dtype, data_offsets }] = Object.entries(head).flatMap(([name, one]) =>
    name === '__metadata__' ? [] : [one],
  )
  if (dtype !== 'F16') throw new Error(`${path}: expected a table of F16, got ${dtype}`)
  const start = 8 + headLength + data_offsets[0]
  const halves = new Uint16Array(shape[0] * shape[1])
  for (let i = 0; i < halves.length; i += 1) halves[i] = file.readUInt16LE(start + 2 * i)
  const floats = Float32Array.from({ length: 65_536 }, (_, half) => floatOf(half))
  return { table: Float32Array.from(halves, (half) => floats[half]), dimensions: shape[1] }
}

function floatOf(half) {
  const sign = half & 0x8000 ? -1 : 1
  const exponent = (half >> 10) & 31
  const fraction = half & 1023
  return exponent === 0 ? sign * fraction * 2 ** -24 : sign * 2 ** (exponent - 15) * (1 + fraction / 1024)
}

const SLOTS = 16_384

/** The slot of a key in a Redis Cluster. Only the part between its first brace and the next closing one counts, if that isn't empty. */
function slotOf(key: string): number {
  const tag = tagOf(key)
  let crc = 0
  for (const byte of Buffer.from(tag ?? key)) {
    crc ^= byte << 8
    for (let bit = 0; bit < 8; bit++) crc = (crc & 0x8000 ? (crc << 1) ^ 0x1021 : crc << 1) & 0xffff
  }
  return crc % SLOTS
}

function tagOf(key: string): string | undefined {
  const open = key.indexOf('{')
  const close = key.indexOf('}', open + 1)
  return open >= 0 && close > open + 1 ? key.slice(open + 1, close) : undefined
}

const tags = new Map<number, string>()

/** A key that belongs to `key`, in the same slot. */
export function keyBeside(key: string, what: string): string {
  if (tagOf(key) !== undefined) return `${what}:${key}`
  if (!key.includes('}')) return `${what}:{${key}}`
  // A tag can't contain a closing brace: use the first number with the same slot as the whole key. All processes find the same one.
  const slot = slotOf(key)
  let tag = tags.get(slot)
  for (let n = 0; tag === undefined; n += 1) if (slotOf(String(n)) === slot) tag = String(n)
  tags.set(slot, tag)
  return `${what}:{${tag}}:${key}`
}

const SLOTS = 16_384

/** Which slot of a Redis Cluster a key is in: what stands between its first brace and the next closing one decides, if anything does. */
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

/** The key of something beside `key`, in the same slot. */
export function keyBeside(key: string, what: string): string {
  if (tagOf(key) !== undefined) return `${what}:${key}`
  if (!key.includes('}')) return `${what}:{${key}}`
  // No tag holds a closing brace: some number whose slot is that of the whole key will do, the same for all who look for it.
  const slot = slotOf(key)
  let tag = tags.get(slot)
  for (let n = 0; tag === undefined; n += 1) if (slotOf(String(n)) === slot) tag = String(n)
  tags.set(slot, tag)
  return `${what}:{${tag}}:${key}`
}

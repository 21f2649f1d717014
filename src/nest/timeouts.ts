/** The driver's waits; 0 or nothing means no limit, except for the operation's own `timeoutMS`. */
const WAITS = ['serverSelectionTimeoutMS', 'connectTimeoutMS', 'socketTimeoutMS', 'waitQueueTimeoutMS'] as const

/**
 * Waits of a client that may last longer than a third of `lockTimeoutMs` (lock protocol, point 11), as `name=value`; empty:
 * a replica on it learns of a dead server while it still has its leases.
 */
export function endlessWaits(client: unknown, lockTimeoutMs: number): string[] {
  const options = (client as { options?: Record<string, unknown> } | undefined)?.options ?? {}
  const limit = lockTimeoutMs / 3
  const isShort = (value: unknown) => typeof value === 'number' && value > 0 && value <= limit
  if (isShort(options['timeoutMS'])) return []
  return WAITS.filter((name) => !isShort(options[name])).map((name) => `${name}=${Number(options[name] ?? 0)}`)
}

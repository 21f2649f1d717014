const MOST_NAMES = 10_000

/**
 * The names whose record exists, as far as this process has seen: the insert is tried once per name. It may be wrong once
 * somebody has deleted a record; a caller that finds none calls `forget`.
 */
export class RecordRegistry {
  private readonly names = new Set<string>()

  has(name: string): boolean {
    return this.names.has(name)
  }

  add(name: string): void {
    if (this.names.size >= MOST_NAMES) this.names.delete(this.names.values().next().value!)
    this.names.add(name)
  }

  forget(name: string): void {
    this.names.delete(name)
  }
}

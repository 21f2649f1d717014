import type { Granted } from '../lock-store.js'

const MOST_NAMES = 10_000

type Taking = () => Promise<Granted | undefined>

/** The names whose record this process has seen: the insert is attempted once per name. */
export class SeenRecords {
  private readonly names = new Set<string>()

  /**
   * Takes a lock.
   * @param ways.update takes it if its record exists and is free; while another caller holds it, this matches nothing and writes nothing
   * @param ways.insert takes it if its record is missing or free
   */
  async take(name: string, ways: { update: Taking; exists: () => Promise<boolean>; insert: Taking }) {
    if (this.names.has(name)) {
      const taken = await ways.update()
      if (taken || (await ways.exists())) return taken
      // The record was deleted.
      this.names.delete(name)
    }
    const taken = await ways.insert()
    if (this.names.size >= MOST_NAMES) this.names.delete(this.names.values().next().value!)
    this.names.add(name)
    return taken
  }
}

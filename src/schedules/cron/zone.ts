import { shown } from '../../options/index.js'

/** A time zone's rules, from the ICU data of Node. Wall times are given as a Date whose UTC fields are the wall's. */
export class Zone {
  private readonly format: Intl.DateTimeFormat

  /** @throws UnknownTimeZone */
  constructor(readonly name: string) {
    try {
      this.format = new Intl.DateTimeFormat('en-US', { timeZone: name, timeZoneName: 'longOffset' })
    } catch {
      throw new UnknownTimeZone(name)
    }
  }

  /** The time by which the wall clock is ahead of UTC at an instant, in ms. */
  offsetMs(instantMs: number): number {
    const text = this.format.format(instantMs)
    const [, sign, hours, minutes, seconds = '0'] = /GMT([+-])(\d\d):(\d\d)(?::(\d\d))?$/.exec(text) ?? []
    if (!sign) return 0
    return (sign === '-' ? -1 : 1) * (Number(hours) * 3_600 + Number(minutes) * 60 + Number(seconds)) * 1_000
  }

  wallOf(instantMs: number): Date {
    return new Date(instantMs + this.offsetMs(instantMs))
  }

  /**
   * The latest wall time that was shown for the first time at this instant or before. This is what the wall shows or, while it repeats an
   * hour, the last moment before it was set back. All wall times up to there have been shown.
   */
  lastShownBefore(instantMs: number): Date {
    // Clocks are changed at whole seconds.
    const wholeMs = Math.floor(instantMs / 1_000) * 1_000
    const first = this.instantOf(this.wallOf(wholeMs))
    if (first >= wholeMs) return this.wallOf(instantMs)
    const setBackMs = this.changeBetween(first, wholeMs)
    return new Date(setBackMs + this.offsetMs(first) - 1)
  }

  /** The instant at which the wall shows this: the first time if it does so twice, and the first instant after the gap if it never does. */
  instantOf(wall: Date): number {
    const wallMs = wall.getTime()
    const before = this.offsetMs(wallMs - DAY_MS)
    const after = this.offsetMs(wallMs + DAY_MS)
    const shown = [wallMs - before, wallMs - after].filter((instant) => instant + this.offsetMs(instant) === wallMs)
    return shown.length > 0 ? Math.min(...shown) : this.changeBetween(wallMs - after, wallMs - before)
  }

  /** The first instant of the new offset, found by halving. */
  private changeBetween(from: number, to: number): number {
    const old = this.offsetMs(from)
    let [last, first] = [from, to]
    while (first - last > 1_000) {
      const middle = Math.floor((last + first) / 2_000) * 1_000
      if (middle <= last) break
      if (this.offsetMs(middle) === old) last = middle
      else first = middle
    }
    return first
  }
}

const DAY_MS = 86_400_000

/** A time zone that isn't in the IANA list. */
export class UnknownTimeZone extends Error {
  override readonly name = 'UnknownTimeZone'
  constructor(
    /** The value that was given. */
    readonly zone: unknown,
  ) {
    super(
      `timezone: expected the name of an IANA time zone such as 'Asia/Seoul', 'Europe/Berlin' or 'UTC', got ${typeof zone === 'string' ? JSON.stringify(zone) : shown(zone)}`,
    )
  }
}

const zones = new Map<string, Zone>()

/** A zone by its name, created once. @throws UnknownTimeZone */
export function zoneOf(name: unknown): Zone {
  if (typeof name !== 'string' || name === '') throw new UnknownTimeZone(name)
  let zone = zones.get(name)
  if (!zone) {
    zone = new Zone(name)
    zones.set(name, zone)
  }
  return zone
}

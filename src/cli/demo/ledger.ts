import type { Document } from 'mongodb'
import { type Run, STEPS } from './tenants.js'

/** The figures of the demo's ledger. */
export interface Figures {
  /** Tenants that never became ready. */
  readonly lost: number
  /** Steps that were recorded more than once, by the tenants' histories. */
  readonly repeated: number
  /** Runs of handlers that began while another run for the same tenant was under way. */
  readonly overlapping: number
  /** Runs of handlers. */
  readonly stepsBegun: number
}

/** Judges the tenants and the runs of their handlers. Pure. */
export function figuresOf(tenants: readonly Document[], runs: readonly Run[]): Figures {
  return {
    lost: tenants.filter(({ phase }) => phase !== 'Ready').length,
    repeated: tenants.reduce((sum, one) => sum + repeatedIn(one), 0),
    overlapping: [...Map.groupBy(runs, ({ tenant }) => tenant).values()].reduce((sum, own) => sum + overlapsIn(own), 0),
    stepsBegun: runs.length,
  }
}

function repeatedIn({ progress }: Document): number {
  const history: readonly Document[] = progress?.history ?? []
  const recorded = (phase: string) => history.filter(({ from, outcome }) => from === phase && outcome === 'moveTo')
  return STEPS.reduce((sum, phase) => sum + Math.max(0, recorded(phase).length - 1), 0)
}

/** A run whose replica died has no end that could be known, so only others count. */
function overlapsIn(runs: readonly Run[]): number {
  const ended = runs.filter(({ endedAt }) => endedAt)
  const isWithin = ({ beganAt }: Run, other: Run) => beganAt > other.beganAt && beganAt < other.endedAt!
  return runs.filter((one) => ended.some((other) => other !== one && isWithin(one, other))).length
}

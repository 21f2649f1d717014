import { apiGatewayDefinitions } from '../../dist/tasks/index.js'

/** Each phase's steps in order. A phase's first step runs without a name, or under its name when it is requested again. */
const STEPS: Readonly<Record<string, readonly string[]>> = {
  'api-gateway/Creating': ['database', 'stage', 'domain', 'children'],
  'api-gateway/Starting': ['routes', 'triggers'],
  'api-gateway/Deleting': ['triggers', 'functions', 'stages', 'domains', 'database'],
  'runtime-domain/Creating': ['reservation', 'route'],
}
const PER_PHASE = 100

/** Thrown for a phase that the lifecycles don't have. */
export class UnknownPhase extends Error {
  override readonly name = 'UnknownPhase'
  constructor(lifecycle: string, phase: string) {
    super(`expected a phase of ${lifecycle}, got '${phase}'`)
  }
}

const phaseNames = new Map(apiGatewayDefinitions().all.map(({ name, model }) => [name, [...model.phases.keys()]]))

/**
 * A step's place in its document's order: phases in the order of the lifecycle's declaration, and within each its
 * steps. A wait and a repeated step keep their number. No document of the demo ever goes to an earlier
 * phase (its owner only asks for Running, then for Deleted), so a lower number after a higher one is always wrong.
 */
export function stepNumber(lifecycle: string, phase: string, step: string | undefined): number {
  const phaseIndex = phaseNames.get(lifecycle)?.indexOf(phase) ?? -1
  if (phaseIndex < 0) throw new UnknownPhase(lifecycle, phase)
  // The handlers treat a name that they don't know, such as one of another phase, as their first step.
  const stepIndex = step === undefined ? 0 : (STEPS[`${lifecycle}/${phase}`] ?? []).indexOf(step)
  return phaseIndex * PER_PHASE + Math.max(0, stepIndex)
}

import type { Handler, Outcome } from '../../src/phases/index.js'
import type { Film, film } from './threads.js'

// A module whose functions run in threads
const render: Handler<'Rendered' | 'Failed', Film> = async (doc, step) => {
  if (step.signal.aborted) return step.again()
  return step.moveTo('Rendered', { set: { frames: doc.frames ?? 1 } })
}
export default render

export async function check(doc: Readonly<Film>, step: typeof film.$step.Rendering): Promise<Outcome<'Failed', Film>> {
  return doc.frames ? step.moveTo('Failed') : step.park('no frames')
}

export const elsewhere: Handler<'Elsewhere', Film> = async (_doc, step) => step.moveTo('Elsewhere')

import type { Handler } from '../../../phases/index.js'
import type { Collections } from '../collections.js'
import type { ApiGateway } from '../documents.js'
import { HeldGateway } from './held-gateway.js'

/** Starting: domains routed, then triggers resumed. Each child is marked with the step's fence, so no late step undoes it. */
export const starting = (collections: Collections): Handler<'Started', ApiGateway> =>
  routing(collections, true, 'Started')

/** Stopping: domains no longer routed, then triggers suspended. */
export const stopping = (collections: Collections): Handler<'Stopped', ApiGateway> =>
  routing(collections, false, 'Stopped')

function routing<P extends string>(collections: Collections, active: boolean, phase: P): Handler<P, ApiGateway> {
  return async (doc, step) => {
    await collections.ensureIndexes()
    const gateway = new HeldGateway(collections, doc, step)
    if (step.name !== 'triggers') {
      await gateway.write('route', { active })
      return step.again({ step: 'triggers' })
    }
    await gateway.write('trigger', { active })
    return step.moveTo(phase)
  }
}

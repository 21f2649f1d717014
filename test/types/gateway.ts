import { lifecycleOf } from '../../src/phases/index.js'

interface Gateway {
  _id: string
  name: string
  state?: 'Running' | 'Stopped' | 'Deleted'
  domain?: string
}

export const gateway = lifecycleOf<Gateway>().define({
  name: 'api-gateway',
  collection: 'ApiGateway',
  phases: {
    Creating: { next: ['Created'], deadline: { after: '5m', moveTo: 'Deleting', setState: 'Deleted' } },
    Created: { rest: true },
    Deleting: { next: ['Deleted'] },
    Deleted: { final: true, keepFor: '1h' },
  },
  rules: [{ when: 'Deleted', from: ['Creating', 'Created'], moveTo: 'Deleting' }],
})

// Plain core: no annotation on doc or step, no generics
gateway.handle({
  async Creating(doc, step) {
    if (!doc.domain) return step.again({ set: { domain: `${doc.name}.example.org` } })
    if (step.waitedMs < 10) return step.wait('certificate not Ready', { for: '1s' })
    return step.moveTo('Created')
  },
  Deleting: async (_doc, step) => step.moveTo('Deleted', { set: { name: 'gone' } }),
})

// Nest: the decorator can't give `doc` and `step` their types (they are written by hand) but it checks them and the outcome
export class GatewayLifecycle {
  constructor(private readonly log: Console) {}
  @gateway.OnPhase('Creating')
  async creating(doc: typeof gateway.$doc, step: typeof gateway.$step.Creating) {
    this.log.info(doc.name)
    return doc.domain ? step.moveTo('Created') : step.wait('no domain yet')
  }
}

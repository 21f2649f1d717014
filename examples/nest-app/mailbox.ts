import { lifecycleOf } from 'phaselock'

/** A mailbox as its owner writes it. */
export interface Mailbox {
  _id: string
  state?: 'Running' | 'Deleted'
  address?: string
}

export const mailbox = lifecycleOf<Mailbox>().define({
  name: 'mailbox',
  collection: 'Mailbox',
  phases: {
    Creating: { next: ['Created'], deadline: { after: '5m', moveTo: 'Deleting', setState: 'Deleted' } },
    Created: { rest: true },
    Deleting: { next: ['Deleted'] },
    Deleted: { final: true, keepFor: '1h' },
  },
  rules: [{ when: 'Deleted', from: 'any', moveTo: 'Deleting' }],
})

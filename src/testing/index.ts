/**
 * For tests of your lifecycles on a real server: time, crashes and races where the test wants them.
 *
 * @example
 * ```ts
 * import { lifecycleOf } from 'phaselock'
 * import { LifecycleKit } from 'phaselock/testing'
 *
 * const mailbox = lifecycleOf<{ _id: string }>().define({
 *   name: 'mailbox',
 *   collection: 'Mailbox',
 *   phases: { Creating: { next: ['Created'] }, Created: { rest: true } },
 * })
 * const mailboxes = mailbox.handle({ Creating: async (_doc, step) => step.moveTo('Created') })
 *
 * const kit = await LifecycleKit.open({ lifecycles: [mailboxes] })
 * await kit.insert('mailbox', { _id: 'box-1', phase: 'Creating' })
 * await kit.tick()
 * await kit.expectPhase('mailbox', 'box-1', 'Created')
 * await kit.close()
 * ```
 * @packageDocumentation
 */
export { backDate } from './back-date.js'
export { LifecycleKit, type LifecycleKitOptions, UnexpectedDocument } from './lifecycle-kit.js'
export { type Fault, type Outside, type RaceOptions, type RaceReport, race } from './race-kit.js'

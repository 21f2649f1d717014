import type { Document } from 'mongodb'
import { traceOf } from '../../../src/lock/end/read-back.js'
import { firstFence } from '../../../src/lock/lease/lease.js'
import type { Write } from '../captured.js'
import { COMMANDS } from '../commands.js'
import { TICK_MS } from './database.js'
import { type Bounds, LOCK_TIMEOUT, PROTECTED, type Protections } from './protections.js'

/** What is explored: each world is small, and together they have all that the protocol is about. */
export const WORLDS = {
  claims: { claims: 3, epochs: 4, faults: 1, ends: ['again', 'move'] },
  'claims, answers lost twice': { claims: 2, epochs: 3, faults: 2, ends: ['again', 'wait'] },
  renewals: { claims: 2, faults: 1, ends: ['again'], renewals: 'answered' },
  'renewals that wait in the server': { claims: 2, epochs: 3, faults: 2, ends: ['unlock'], renewals: 'waiting' },
  rules: { claims: 2, epochs: 3, faults: 1, ends: ['again', 'park'], wishes: true },
  'owners and effects': { ticks: 4, claims: 2, ends: ['again', 'unlock'], edits: 1, effects: true },
  'checkpoints and steps that are given up': { claims: 2, faults: 2, ends: ['error'], checkpoints: true },
  'a stop': { claims: 2, epochs: 3, faults: 1, ends: ['again', 'released'] },
  'legacy writers': { claims: 2, epochs: 3, ends: ['wait', 'move'], legacy: true, wishes: true },
  'legacy writers, answers lost': {
    claims: 2,
    epochs: 2,
    faults: 1,
    ends: ['move'],
    renewals: 'answered',
    legacy: true,
  },
  'early recovery': { claims: 3, faults: 1, ends: ['unlock'], renewals: 'answered', crashes: true },
  'early recovery beside legacy writers': {
    claims: 2,
    ends: ['wait'],
    renewals: 'answered',
    legacy: true,
    crashes: true,
  },
} as const satisfies Record<string, Bounds>

export type WorldName = keyof typeof WORLDS

/** One protection taken away, where that shows, and the invariant that breaks. */
export interface Mutation {
  readonly without: string
  readonly world: WorldName
  readonly breaks: string
  readonly protections: Partial<Protections>
}

type Commands = typeof COMMANDS
const withCommands = (more: Partial<Commands>): Partial<Protections> => ({ commands: { ...COMMANDS, ...more } })
const filtered = ({ filter, update }: Write, change: (filter: Document) => Document): Write => ({
  filter: change(filter),
  ...(update && { update }),
})
const setting = ({ filter, update }: Write, fields: Document): Write => {
  const [{ $set }, ...stages] = update as [Document, ...Document[]]
  return { filter, update: [{ $set: { ...$set, ...fields } }, ...stages] }
}
const without =
  (...names: string[]) =>
  (filter: Document): Document =>
    Object.fromEntries(Object.entries(filter).filter(([name]) => !names.includes(name)))
/** A rule's filter has parts. */
const inEach =
  (change: (filter: Document) => Document) =>
  ({ $and }: Document): Document => ({ $and: $and.map(change) })
const keeping = ({ filter, update }: Write, field: string): Write => {
  const [{ $set }, ...stages] = update as [Document, ...Document[]]
  return { filter, update: [{ $set: without(field)($set) }, ...stages] }
}
const atEquality = { $expr: { $lte: ['$lockedAt', { $subtract: ['$$NOW', LOCK_TIMEOUT * TICK_MS] }] } }

export const MUTATIONS: readonly Mutation[] = [
  {
    without: "the token in a holder's writes",
    world: 'claims',
    breaks: 'I1',
    protections: withCommands({ end: (...of) => filtered(COMMANDS.end(...of), without('lockedBy')) }),
  },
  {
    without: 'a token for each step',
    world: 'claims',
    breaks: 'I1',
    protections: { tokenOf: (replica, claim) => `${replica}#${claim}.1` },
  },
  {
    without: 'a token for each claim',
    world: 'claims',
    breaks: 'I1',
    protections: { tokenOf: (replica) => `${replica}#1.1` },
  },
  {
    without: "the server's clock",
    world: 'claims',
    breaks: 'I6',
    protections: { aheadOf: (replica) => (replica === 'b' ? LOCK_TIMEOUT + 1 : 0) },
  },
  {
    without: 'being due in the claim itself',
    world: 'claims',
    breaks: 'I6',
    protections: withCommands({ claim: (...of) => filtered(COMMANDS.claim(...of), without('$expr')) }),
  },
  {
    without: "a lease's age that counts on over a chain",
    world: 'claims',
    breaks: 'I6',
    protections: { againRestartsAge: true },
  },
  {
    without: 'an age that counts from before the claim was sent',
    world: 'claims',
    breaks: 'I6',
    protections: { ageCountsFromAnswer: true },
  },
  {
    without: 'reading back what matched nothing',
    world: 'claims',
    breaks: 'I9',
    protections: { readsBack: false },
  },
  {
    without: 'never guessing what became of a write',
    world: 'claims, answers lost twice',
    breaks: 'I9',
    protections: { traceOf: (...of) => (traceOf(...of) === 'movedOn' ? 'written' : traceOf(...of)) },
  },
  {
    without: "the holder in a renewal's condition",
    world: 'renewals',
    breaks: 'I5',
    protections: withCommands({
      renew: (terms, replica, claim) =>
        filtered(COMMANDS.renew(terms, replica, claim), (filter) => ({
          ...filter,
          lockedBy: { $gte: `${replica}#`, $lt: `${replica}$` },
        })),
    }),
  },
  {
    without: 'the larger of lockedAt and now in a renewal',
    world: 'renewals that wait in the server',
    breaks: 'I6',
    protections: withCommands({ renew: (...of) => setting(COMMANDS.renew(...of), { lockedAt: '$$NOW' }) }),
  },
  {
    without: "a rule's removal of lockedBy",
    world: 'rules',
    breaks: 'I2',
    protections: withCommands({ rule: (...of) => keeping(COMMANDS.rule(...of), 'lockedBy') }),
  },
  {
    without: 'nobody holds it in a rule',
    world: 'rules',
    breaks: 'I4',
    protections: withCommands({ rule: (...of) => filtered(COMMANDS.rule(...of), inEach(without('$or'))) }),
  },
  {
    without: 'held at equality',
    world: 'rules',
    breaks: 'I4',
    protections: withCommands({
      rule: (...of) =>
        filtered(
          COMMANDS.rule(...of),
          inEach((filter) => ('$or' in filter ? { ...filter, $or: [{ lockedBy: null }, atEquality] } : filter)),
        ),
    }),
  },
  {
    without: 'a fence that is larger than the one before',
    world: 'owners and effects',
    breaks: 'I3',
    protections: withCommands({
      claim: (...of) => setting(COMMANDS.claim(...of), { fence: firstFence }),
    }),
  },
  {
    without: "the server's time in a fence",
    world: 'owners and effects',
    breaks: 'I3',
    protections: withCommands({
      claim: (...of) => setting(COMMANDS.claim(...of), { fence: { $add: [{ $ifNull: ['$fence', 0] }, 1] } }),
    }),
  },
  {
    without: "one order for one document's writes",
    world: 'checkpoints and steps that are given up',
    breaks: 'I10',
    protections: { oneAtATime: false },
  },
  {
    without: 'that, and endedBy counts for a checkpoint too',
    world: 'checkpoints and steps that are given up',
    breaks: 'I9',
    protections: {
      oneAtATime: false,
      traceOf: (document, terms, write) =>
        document?.['progress']?.endedBy === write.token ? 'written' : traceOf(document, terms, write),
    },
  },
  {
    without: 'a lease that stays under a running handler when its replica stops',
    world: 'a stop',
    breaks: 'I6',
    protections: { unlocksUnderHandler: true },
  },
  {
    without: "the lease's mark in a holder's writes",
    world: 'legacy writers',
    breaks: 'I1',
    protections: withCommands({ end: (...of) => filtered(COMMANDS.end(...of), without('$expr')) }),
  },
  {
    without: "the lease's mark in a renewal",
    world: 'legacy writers, answers lost',
    breaks: 'I1',
    protections: withCommands({ renew: (...of) => filtered(COMMANDS.renew(...of), without('$expr')) }),
  },
  {
    without: 'what tells a sleep from a lease of the old kind, in a rule',
    world: 'legacy writers',
    breaks: 'I4',
    protections: withCommands({
      rule: (terms, ...of) => COMMANDS.rule({ ...terms, legacyWriters: false }, ...of),
    }),
  },
  {
    without: "the lease's mark in an early recovery",
    world: 'early recovery beside legacy writers',
    breaks: 'I4',
    protections: { recovery: (...of) => filtered(PROTECTED.recovery(...of), without('$expr')) },
  },
  {
    without: 'the token of the process that has ended in an early recovery',
    world: 'early recovery',
    breaks: 'I4',
    protections: { recovery: (...of) => filtered(PROTECTED.recovery(...of), without('lockedBy')) },
  },
]

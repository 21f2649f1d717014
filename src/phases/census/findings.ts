import type { Document } from 'mongodb'
import {
  answerIn,
  hasToken,
  isValid,
  LEASE_FIELDS,
  type LeaseTerms,
  leaseStateOf,
  questionIn,
  typeName,
} from '../../lock/index.js'
import type { LifecycleModel } from '../model/model.js'
import { troubleOf } from '../model/trouble.js'
import type { Census, Count, TroubleGroup } from './census.js'
import { SomeIds, type Stratum, Tally } from './tally.js'

/** The most groups that are listed of each kind: 64 KB have to hold all. */
const MOST_GROUPS = 50
/** The most that are kept while documents are read: 10,000 causes of 10,000 documents must not take more memory than a few. */
const MOST_KEPT = 1_000

/** The fields that are read of a document. */
export const foundFields = (progress: string): Document => ({
  ...LEASE_FIELDS,
  ...{ phase: 1, createdAt: 1 },
  ...Object.fromEntries(
    ['error', 'attempts', 'claims', 'steps', 'since', 'at', 'resumeAt', 'waitingFor', 'waitingOn', 'waitingSince'].map(
      (field) => [`${progress}.${field}`, 1],
    ),
  ),
  ...{ [`${progress}.question`]: 1, [`${progress}.answer`]: 1 },
  shape: { $type: `$${progress}` },
})

class Group {
  readonly ids = new SomeIds()
  readonly phases = new Set<string>()
  oldest: Date
  newest: Date

  constructor(
    readonly text: string,
    at: Date,
    readonly tally: Tally,
  ) {
    this.oldest = at
    this.newest = at
  }

  add(stratum: Stratum, document: Document, at: Date): void {
    this.tally.add(stratum)
    this.ids.add(document['_id'])
    if (typeof document['phase'] === 'string') this.phases.add(document['phase'])
    if (at < this.oldest) this.oldest = at
    if (at > this.newest) this.newest = at
  }
}

/** Groups by key, a thousand at most: beyond that the smaller half is only counted, until another of their documents comes. */
class Groups {
  private byKey = new Map<string, Group>()
  private readonly others = new Map<string, Tally>()

  add(key: string, text: string, stratum: Stratum, document: Document, at: Date): void {
    let group = this.byKey.get(key)
    if (!group) {
      if (this.byKey.size >= MOST_KEPT) this.leaveSmaller()
      group = new Group(text, at, this.others.get(key) ?? new Tally())
      this.others.delete(key)
      this.byKey.set(key, group)
    }
    group.add(stratum, document, at)
  }

  /** Those with the most documents, and the number of those that are left out. */
  largest(): { readonly groups: readonly (readonly [string, Group])[]; readonly more: number } {
    const all = this.bySize()
    return { groups: all.slice(0, MOST_GROUPS), more: Math.max(0, all.length - MOST_GROUPS) + this.others.size }
  }

  private bySize(): (readonly [string, Group])[] {
    return [...this.byKey].sort(([, one], [, other]) => other.tally.size - one.tally.size)
  }

  private leaveSmaller(): void {
    const all = this.bySize()
    this.byKey = new Map(all.slice(0, MOST_KEPT / 2))
    for (const [key, { tally }] of all.slice(MOST_KEPT / 2)) this.others.set(key, tally)
  }
}

/** What the documents of one phase do, of those that sleep, are held or have woken. */
export class PhaseFindings {
  readonly held = new Tally()
  readonly sleeping = new Tally()
  readonly asking = new Tally()
  readonly failing = new Tally()
  readonly waiting = new Tally()

  looked(stratum: Stratum, isLater: boolean): void {
    this.failing.looked(stratum)
    if (isLater) for (const one of [this.held, this.sleeping, this.asking, this.waiting]) one.looked(stratum)
  }
}

/** What is the matter with the documents of a lifecycle, of those that were read. */
export class Findings {
  private readonly errors = new Groups()
  private readonly parks = new Groups()
  private readonly waits = new Groups()
  private readonly brokenOnes = new Groups()
  private readonly loopsBy = new Groups()
  private readonly asking = new Tally()
  private readonly askingIds = new SomeIds()
  private nearestDeadline: Date | null = null
  /** Those of which some documents were only sampled: what was found there isn't all. */
  private readonly sampled = { any: false, later: false, parked: false }

  constructor(
    private readonly model: LifecycleModel,
    private readonly terms: LeaseTerms,
    private readonly now: Date,
  ) {}

  /** Notes documents that were read of a stratum. @param isLater true for those that sleep or are held; false: due ones */
  add(documents: readonly Document[], stratum: Stratum, phase: PhaseFindings, isLater: boolean): void {
    phase.looked(stratum, isLater)
    if (isLater) this.asking.looked(stratum)
    this.sampled.any ||= isSampled(stratum)
    this.sampled.later ||= isLater && isSampled(stratum)
    for (const document of documents) if (!this.isBroken(document, stratum)) this.addOne(document, stratum, phase)
  }

  addParked(documents: readonly Document[], stratum: Stratum): void {
    this.sampled.parked ||= isSampled(stratum)
    for (const document of documents) {
      if (this.isBroken(document, stratum)) continue
      const trouble = troubleOf(document, this.model)
      if (trouble) this.parks.add(trouble.cause, trouble.text, stratum, document, this.timeOf(document))
    }
  }

  /** Notes documents that no claim can use. */
  addBroken(field: string, found: string, documents: readonly Document[], stratum: Stratum): void {
    for (const document of documents)
      this.brokenOnes.add(JSON.stringify([field, found]), '', stratum, document, this.now)
  }

  private isBroken(document: Document, stratum: Stratum): boolean {
    const { progress } = this.model.settings
    const shape: unknown = document['shape']
    if (shape === 'object' || shape === 'missing' || shape === 'null') return false
    this.addBroken(progress, `of the type ${String(shape)}`, [document], stratum)
    return true
  }

  private addOne(document: Document, stratum: Stratum, phase: PhaseFindings): void {
    const { progress, backOff } = this.model.settings
    const state = leaseStateOf(document, this.terms, this.now)
    const own = Object(document[progress]) as Document
    if (typeof own['steps'] === 'number' && own['steps'] >= backOff.afterSteps)
      this.loopsBy.add(String(document['phase']), '', stratum, document, this.now)
    if (state.kind === 'held') phase.held.add(stratum)
    // A claim keeps the error: a document that is tried again has failed until that step ends well.
    const trouble = troubleOf(document, this.model)
    if (trouble) {
      phase.failing.add(stratum)
      this.errors.add(trouble.cause, trouble.text, stratum, document, this.timeOf(document))
    }
    if (state.kind !== 'asleep' || hasToken(document)) return
    phase.sleeping.add(stratum)
    this.addSleeping(document, own, stratum, phase)
  }

  private addSleeping(document: Document, own: Document, stratum: Stratum, phase: PhaseFindings): void {
    const question = questionIn(own)
    if (question && !answerIn(own, question) && !(question.deadline && question.deadline <= this.now)) {
      phase.asking.add(stratum)
      this.asking.add(stratum)
      this.askingIds.add(document['_id'])
      const { deadline } = question
      if (deadline && (!this.nearestDeadline || deadline < this.nearestDeadline)) this.nearestDeadline = deadline
      return
    }
    if (typeof own['waitingFor'] !== 'string') return
    phase.waiting.add(stratum)
    const on = typeof own['waitingOn'] === 'string' ? own['waitingOn'].slice(0, 50) : '-'
    const since = dateOf(own['waitingSince']) ?? this.timeOf(document)
    this.waits.add(JSON.stringify([on, document['phase']]), on, stratum, document, since)
  }

  /** When its last step ended. */
  private timeOf(document: Document): Date {
    const { at, since } = Object(document[this.model.settings.progress]) as Document
    return dateOf(at) ?? dateOf(since) ?? dateOf(document['updatedAt']) ?? this.now
  }

  /** The lists of a census. @param firstSeen the time when an earlier census found a cause first */
  lists(
    firstSeen: (cause: string) => Date | undefined,
  ): Pick<Census, 'errors' | 'moreErrors' | 'parks' | 'moreParks' | 'waits' | 'questions' | 'broken' | 'loops'> {
    const { any, later, parked } = this.sampled
    const troubles =
      (isPartly: boolean) =>
      ([cause, group]: readonly [string, Group]): TroubleGroup => ({
        ...{ cause, text: group.text, phases: [...group.phases].slice(0, MOST_PHASES) },
        documents: countIn(group, isPartly),
        ...{ oldest: group.oldest, newest: group.newest, firstSeen: firstSeen(cause) ?? this.now, ids: group.ids.ids },
      })
    const [errors, parks] = [this.errors.largest(), this.parks.largest()]
    return {
      ...{ errors: errors.groups.map(troubles(any)), moreErrors: errors.more },
      ...{ parks: parks.groups.map(troubles(parked)), moreParks: parks.more },
      waits: this.waits.largest().groups.map(([, group]) => {
        const { text: on, phases, oldest, ids } = group
        return { on, phase: [...phases][0] ?? '', documents: countIn(group, later), oldest, ids: ids.ids }
      }),
      questions: {
        ...{ documents: this.asking.count, nearestDeadline: this.nearestDeadline, ids: this.askingIds.ids },
      },
      broken: this.brokenOnes.largest().groups.map(([key, group]) => {
        const [field, found] = JSON.parse(key) as [string, string]
        const isPartly = field === this.model.settings.progress && (any || parked)
        return { field, found, documents: countIn(group, isPartly), ids: group.ids.ids }
      }),
      loops: this.loopsBy.largest().groups.map(([phase, group]) => {
        return { phase, documents: countIn(group, any), ids: group.ids.ids }
      }),
    }
  }
}

const MOST_PHASES = 10

const isSampled = ({ n, more, read }: Stratum): boolean => more || read < n

/** A group's documents; about so many where others of them may be among those that weren't read. */
const countIn = ({ tally }: Group, isPartly: boolean): Count => ({ ...tally.count, ...(isPartly && { about: true }) })

const dateOf = (value: unknown): Date | undefined => (value instanceof Date && isValid(value) ? value : undefined)

/** The type of a value of `lockedAt` that no claim finds. */
export const lockedAtFound = ({ lockedAt }: Document): string => typeName(lockedAt)

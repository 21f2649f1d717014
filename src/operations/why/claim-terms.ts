import { idKey, MOST_AHEAD, type PresentReplica, pausedLimitText, pausesOfLimit, WorkSplit } from '../../lock/index.js'
import { numbered, typed } from '../../options/index.js'
import { mostBeside, rateText } from '../../phases/index.js'
import { formatMs, fromNow, systemClock } from '../../time/index.js'
import { countText } from '../inspect/count-text.js'
import type { LifecycleOfReplica, ReplicaState } from '../inspect/replicas.js'
import type { Facts, Judged, NeededLimit } from './facts.js'
import { progressOf } from './own-terms.js'
import { fails, holds, isUnknown, type Term } from './term.js'

/* The terms that decide which of the due documents a replica claims. */

export function clockTerm({ found: { now } }: Judged, { entry, dueWithoutStep }: Facts): Term {
  if ('unknown' in entry) return isUnknown('clock', entry.unknown)
  const step = entry.value.clockStep
  if (!step) return holds('clock', "no step of the server's clock is held back")
  const { ms, until } = step
  const stepped = `the server's clock stepped forward by ${formatMs(ms)}`
  if (dueWithoutStep && 'unknown' in dueWithoutStep) return isUnknown('clock', dueWithoutStep.unknown, step)
  if (dueWithoutStep?.value !== false) return holds('clock', `${stepped}, and it doesn't rest on that`, step)
  return fails('clock', `${stepped}, and only that has made it due: it waits until ${fromNow(until, now)}`, step)
}

export function limitTerms({ limits, replicas, entry }: Facts): readonly Term[] {
  if ('unknown' in limits) return [isUnknown('limit', limits.unknown)]
  if (limits.value.length === 0) return [holds('limit', 'it needs no limit')]
  const present = 'value' in entry ? entry.value.present.map(({ name }) => name) : []
  return limits.value.map((need) => limitTerm(need, replicas, present))
}

/** The sentences are those of `phaselock show`, too. */
function limitTerm(need: NeededLimit, beats: Facts['replicas'], present: readonly string[]): Term {
  const { limit: name, slots: needs, limitNow, declared = null, startsLeft = null, key } = need
  if (!limitNow) {
    const evidence = { limit: name, needs, declared, exists: false, key: key !== undefined }
    if (key || declared !== null) return holds('limit', `all slots of ${name} are free`, evidence)
    const how = `phaselock limits set ${typed(name)} --slots ${needs}`
    return fails('limit', `there is no limit ${name}, so nothing that needs it begins (${how})`, evidence)
  }
  const { slots, rate, holders, paused, damaged } = limitNow
  const taken = holders.reduce((sum, one) => sum + one.slots, 0)
  const replicas = 'value' in beats ? beats.value : []
  // Only a replica of its own lifecycle could take it into a slot that it has leased.
  const silent = holders.filter(({ by }) => present.includes(by) && !replicas.some((one) => one.name === by))
  const unsure =
    'unknown' in beats
      ? beats.unknown
      : silent.length > 0
        ? `${silent.map(({ by }) => by).join(', ')} doesn't say how many of its slots it uses`
        : undefined
  const unused = unsure === undefined ? unusedSlots(name, replicas) : null
  const evidence = {
    ...{ limit: name, needs, declared, exists: true, key: key !== undefined },
    ...{ slots, taken, unused, rate, startsLeft, holders, paused, damaged },
  }
  const pauses = pausesOfLimit(paused).map((one) => pausedLimitText(name, one))
  if (pauses.length > 0)
    return fails('limit', `its limit ${pauses.join('; ')} (phaselock limits resume ${typed(name)})`, evidence)
  if (damaged !== null && slots === 0)
    return fails(
      'limit',
      `its limit ${name} lets nothing begin: ${damaged} (phaselock limits set ${typed(name)})`,
      evidence,
    )
  const pace = rate ? `its limit ${name} lets ${rateText(rate)} begin` : undefined
  if (slots !== null && slots < needs) {
    const enough = (declared ?? 0) >= needs ? 'declared' : needs
    const how = `phaselock limits set ${typed(name)} --slots ${enough}`
    return fails(
      'limit',
      `it waits for a slot of its limit ${name}: it has ${slots}, and ${needs} are needed (${how})`,
      evidence,
    )
  }
  if (slots !== null && slots - taken < needs && (unused ?? unusedSlots(name, replicas)) < needs) {
    if (unsure !== undefined && holders.length > 0)
      return isUnknown(
        'limit',
        `${taken} of ${slots} of its limit ${name} are taken, and whether one of them is free for it isn't known: ${unsure}`,
        evidence,
      )
    const who = holders.map((one) => `${one.by} has ${one.slots}`).join(', ')
    const also = pace ? `; ${pace}` : ''
    const full = `${taken} of ${slots} are taken: ${who}${also}`
    return fails('limit', `it waits for a slot of its limit ${name}: ${full}`, evidence)
  }
  if (rate && startsLeft !== null && startsLeft < 1) return fails('limit', `${pace}, and none may now`, evidence)
  const free = slots === null ? '' : `${slots - taken} of ${numbered(slots, 'slot')} of ${name} are free`
  return holds('limit', [free, pace].filter(Boolean).join('; ') || `${name} limits nothing`, evidence)
}

/** Slots that live replicas have leased and don't use, as of their last beats: a document that one of these claims has them at once. */
const unusedSlots = (name: string, replicas: readonly ReplicaState[]): number =>
  replicas
    .filter(({ live }) => live)
    .flatMap(({ limits = [] }) => limits.filter(({ limit }) => limit === name))
    .reduce((most, { leased, used }) => Math.max(most, leased - used), 0)

/** A live replica as it concerns one document. */
interface Able {
  readonly name: string
  /** Undefined: it doesn't say. */
  readonly phases: readonly string[] | undefined
  readonly places: number | null
  readonly free: number | null
  readonly held: number | null
}

/** The live replicas of its lifecycle, by their announcements and their beats. */
function liveReplicas({ model }: Judged, present: readonly PresentReplica[], beats: readonly ReplicaState[]): Able[] {
  const of = ({ lifecycles }: ReplicaState): LifecycleOfReplica | undefined =>
    lifecycles.find(({ name }) => name === model.name)
  const live = beats.filter((one) => one.live && of(one) !== undefined)
  const names = [...new Set([...present, ...live].map(({ name }) => name))].sort()
  return names.map((name) => {
    const beat = live.find((one) => one.name === name)
    const { phases, places = null, free = null, held = null } = (beat && of(beat)) ?? {}
    const announced = present.find((one) => one.name === name)?.phases
    return { name, phases: phases ?? (Array.isArray(announced) ? announced : undefined), places, free, held }
  })
}

/** The live replicas that may run its next step; undefined: it isn't known. */
export function ableReplicas(judged: Judged, { entry, replicas }: Facts): readonly Able[] | undefined {
  if ('unknown' in entry) return undefined
  const beats = 'value' in replicas ? replicas.value : []
  const { phase } = judged.found.document
  return liveReplicas(judged, entry.value.present, beats).filter((one) => one.phases?.includes(phase) ?? true)
}

export function replicaTerm(judged: Judged, facts: Facts): Term {
  const { model, found } = judged
  const { entry, unknownTask } = facts
  const { phase, _id } = found.document
  const able = ableReplicas(judged, facts)
  if (!able || 'unknown' in entry) return isUnknown('replica', 'unknown' in entry ? entry.unknown : '?')
  if ('value' in unknownTask && unknownTask.value !== undefined)
    return fails(
      'replica',
      `no replica that runs knows its task '${unknownTask.value}': correct the name in its schedule, or start a version that has it`,
      {
        task: unknownTask.value,
      },
    )
  const beats = 'value' in facts.replicas ? facts.replicas.value : []
  const all = liveReplicas(judged, entry.value.present, beats).map(({ name }) => name)
  if (able.length === 0) {
    const evidence = { phase, live: all, handles: [] }
    if (all.length > 0)
      return fails(
        'replica',
        `no live replica handles ${phase}: ${all.join(', ')} ${all.length === 1 ? 'has' : 'have'} other phases`,
        evidence,
      )
    if (entry.value.isLookedAfter)
      return isUnknown(
        'replica',
        `a replica of ${model.name} has looked lately, and none says that it is live: it is ticked by hand, of an older version, or has just stopped`,
        evidence,
      )
    return fails('replica', `no replica of ${model.name} is live`, evidence)
  }
  const names = able.map(({ name }) => name)
  const share = names.find((self) => isOwnOf(self, names, _id, phase)) ?? null
  const evidence = { phase, live: all, handles: able.map(({ phases: _, ...one }) => one), share }
  const unsure = able.filter(({ phases }) => phases === undefined)
  if (unsure.length === able.length)
    return isUnknown(
      'replica',
      `${names.join(', ')} ${names.length === 1 ? "doesn't say which phases it handles" : "don't say which phases they handle"}`,
      evidence,
    )
  const places = able.map(({ name, free }) => (free === null ? name : `${name} (${numbered(free, 'place')} free)`))
  return holds('replica', `${phase} is handled by ${places.join(', ')}; it is in the share of ${share}`, evidence)
}

/** By the very split that replicas use: a preference that ends after some seconds. */
const isOwnOf = (self: string, replicas: readonly string[], id: unknown, phase: string): boolean =>
  new WorkSplit(() => ({ self, replicas }), systemClock).isOwn(idKey(id), phase)

export function turnTerm(judged: Judged, facts: Facts): Term {
  const { ahead } = facts
  const { priorityBy, fairBy } = judged.model.settings
  const { document } = judged.found
  const by = priorityBy ?? fairBy
  const order = by === undefined ? {} : { by, value: document[by] ?? null, order: priorityBy ? 'rank' : 'turns' }
  if (!ahead) return isUnknown('turn', "it isn't due, so it has no turn yet", order)
  if ('unknown' in ahead) return isUnknown('turn', ahead.unknown, order)
  const { n, kind } = ahead.value
  const count = { n, ...(n >= MOST_AHEAD && { more: true as const }) }
  const of = by === undefined ? '' : priorityBy ? ` of its rank (${priorityBy})` : ` of its ${by}`
  const text = `${countText(count)} ${n === 1 ? 'is' : 'are'} ahead of it among the ${KINDS[kind]} documents${of}`
  const able = ableReplicas(judged, facts) ?? []
  const known = able.filter(({ free }) => free !== null)
  const free = known.reduce((sum, one) => sum + one.free!, 0)
  const evidence = { ahead: count, kind, ...order, free: known.length > 0 ? free : null }
  if (known.length < able.length || able.length === 0)
    return isUnknown('turn', `${text}; how many places are free isn't known`, evidence)
  if (by !== undefined && n < free) {
    // Values take turns, and of each rank some move: of those of other values, too, some may come first.
    const { due } = facts
    if (!due || 'unknown' in due)
      return isUnknown('turn', `${text}; ${due?.unknown ?? 'those of others are not counted'}`, evidence)
    const others = { n: due.value, ...(due.value >= MOST_AHEAD && { more: true as const }) }
    if (others.n >= free)
      return isUnknown(
        'turn',
        `${text}; ${countText(others)} others are due, and what comes before it among those of other ${by} isn't known`,
        { ...evidence, due: others },
      )
  }
  const places = `${numbered(free, 'place')} of ${numbered(able.length, 'replica')} ${free === 1 ? 'is' : 'are'} free`
  return n < free ? holds('turn', `${text}; ${places}`, evidence) : fails('turn', `${text}, and ${places}`, evidence)
}
const KINDS = { fresh: 'new', released: 'released', woken: 'woken' } as const

export function writesTerm({ found }: Judged, { refusal }: Facts): Term {
  if (found.condition.kind !== 'due') return isUnknown('writes', 'a claim is tried only of what is due')
  if ('unknown' in refusal) return isUnknown('writes', refusal.unknown)
  const { value } = refusal
  return value === undefined
    ? holds('writes', 'the server takes the write of a claim')
    : fails('writes', `the server lets no replica write it: ${value}`, { refusal: value })
}

/** A document that was claimed before without an outcome may kill its replica: few of these run at a time, on its last claim it runs alone. */
export function isolationTerm(judged: Judged, facts: Facts): Term {
  const { model, found } = judged
  const { maxClaims } = model.settings
  const claims = Number(progressOf(found.document, model.settings.progress).claims) || 0
  if (claims === 0)
    return holds('isolation', 'its last claim has an outcome, so it is no suspect', { claims, maxClaims })
  if (found.condition.kind === 'held') return holds('isolation', 'it runs now', { claims, maxClaims })
  const able = ableReplicas(judged, facts) ?? []
  const isAlone = claims + 1 === maxClaims
  const beside = able.map(({ name, places, held }) => {
    const most = mostBeside({ maxClaims, concurrency: places ?? model.settings.concurrency }, claims + 1)
    return { name, held, most: Number.isFinite(most) ? most : null }
  })
  const evidence = { claims, maxClaims, alone: isAlone, beside }
  const times = `it was claimed ${numbered(claims, 'time')} without an outcome`
  if (claims >= maxClaims) return holds('isolation', `${times}: the next claim parks it`, evidence)
  const how = isAlone ? 'runs alone' : 'runs beside few other suspects'
  if (beside.some(({ held }) => held === 0)) return holds('isolation', `${times}, and ${how}`, evidence)
  const isBusy = beside.length > 0 && beside.every(({ held }) => held !== null)
  if (isAlone && isBusy)
    return fails('isolation', `${times}, so it has to run alone: it waits until a replica holds nothing else`, evidence)
  return isUnknown('isolation', `${times}, and ${how}: no replica says how many suspects it holds`, evidence)
}

export function indexTerm({ index }: Facts): Term {
  if ('unknown' in index) return isUnknown('index', index.unknown)
  const { value } = index
  if (!value) return holds('index', 'the indexes of the protocol are there')
  const { what, problem, command } = value
  return fails('index', `${what}: ${problem}, and nothing is claimed without it`, { what, problem, command })
}

import type { EndKind, Terms } from '../../../src/lock/index.js'
import { again, checkpoint, failed, moveTo, park, released, unlock, wait } from '../../lock/fixture.js'
import { ID } from '../commands.js'
import type { Machine, Move } from '../explore.js'
import { fenceOf, ModelDatabase } from './database.js'
import { hasRival, stuck, twice } from './judgement.js'
import { Others } from './others.js'
import { type Bounds, LOCK_TIMEOUT, PHASE, type Protections, termsIn } from './protections.js'
import {
  type Doubt,
  dropped,
  type EndName,
  forgotten,
  idOf,
  type Late,
  type OpenCheckpoint,
  replaced,
  type Task,
  type World,
} from './state.js'

const ENDS: Record<EndName, EndKind> = {
  again: again(),
  unlock,
  wait: wait(1_000),
  move: moveTo('Created'),
  park,
  error: failed,
  released,
  checkpoint,
}
const REPLICAS = ['a', 'b']

type Written = { world: World; matched: boolean; broken: string[] }

/**
 * Replicas, and whoever else touches a document (`others.ts`), as a machine: each move is one atomic write, an answer that is understood, or a tick
 * of the clock. Nothing has to happen at any time, so pauses, handlers that hang and processes that stand still need no move.
 */
export class LeaseMachine implements Machine<World> {
  readonly initial: readonly World[] = [
    {
      tick: 0,
      document: { _id: ID, phase: PHASE, lockedAt: new Date(0) },
      epoch: 0,
      recorded: 0,
      tasks: [],
      checkpoints: [],
      claims: [],
      late: [],
      executed: [],
      legacy: null,
      dead: [],
      zombies: [],
      highestFence: Number.MIN_SAFE_INTEGER,
      highestEpoch: 0,
      claimsSoFar: 0,
      faults: 0,
      edits: 0,
    },
  ]
  private readonly database: ModelDatabase
  private readonly others: Others
  private readonly terms: Terms

  constructor(
    private readonly protections: Protections,
    private readonly bounds: Bounds,
  ) {
    this.database = new ModelDatabase(bounds.effects === true)
    this.others = new Others(this.database, protections, bounds)
    this.terms = termsIn(bounds)
  }

  *moves(world: World): Generator<Move<World>> {
    const { bounds } = this
    if (bounds.ticks === undefined) yield { action: 'tick', to: this.aTickLater(world) }
    else if (world.tick < bounds.ticks) yield { action: 'tick', to: { ...world, tick: world.tick + 1 } }
    for (const replica of REPLICAS) {
      // Which of them claims first makes no difference.
      if (replica !== 'a' && world.claimsSoFar === 0) continue
      if (!world.dead.includes(replica)) yield* this.claims(world, replica)
    }
    for (const task of world.tasks) yield* this.turn(world, task)
    for (const open of world.checkpoints) yield this.settleCheckpoint(world, open)
    for (const open of world.claims) yield* this.settleClaim(world, open)
    for (const late of world.late) yield this.arrive(world, late)
    yield* this.others.moves(world)
    for (const zombie of world.zombies) yield this.effect(world, zombie)
  }

  keyOf(world: World): string {
    const { document, tasks, checkpoints, claims, late, zombies, executed, legacy, dead, ...numbers } = world
    const lists = [tasks, checkpoints, claims, late, zombies].map((list) => list.map(keyOfOne).sort().join())
    const number = document ? this.database.numberOf(document) : 0
    return [number, ...Object.values(numbers), ...lists, executed, legacy?.epoch, legacy?.from, dead].join('|')
  }

  /** Now is always the same moment, and all else was a tick longer ago: so time needs no bound. */
  private aTickLater(world: World): World {
    const before = <One extends { from: number }>(one: One): One => ({
      ...one,
      from: Math.max(one.from - 1, -LOCK_TIMEOUT),
    })
    return {
      ...world,
      document: this.database.aTickLater(world.document),
      tasks: world.tasks.map(before),
      claims: world.claims.map(before),
      legacy: world.legacy && before(world.legacy),
      late: world.late.map(olderBy1),
    }
  }

  // ----- claims

  private *claims(world: World, replica: string): Generator<Move<World>> {
    if (world.claimsSoFar >= this.bounds.claims) return
    const claim = world.claimsSoFar + 1
    const token = this.protections.tokenOf(replica, claim, 1)
    const counted = { ...world, claimsSoFar: claim }
    const won = this.executeClaim(counted, replica, token)
    if (won.matched) {
      const task = this.task(won.world, { replica, claim, token, from: world.tick })
      const to = { ...won.world, tasks: [...won.world.tasks, task] }
      yield { action: `claim ${token}`, to, broken: [...won.broken, ...twice(to)] }
    }
    if (won.matched && world.faults < (this.bounds.faults ?? 0)) {
      const late: Late = { what: 'claim', replica, claim, token }
      const open = { replica, claim, token, from: world.tick }
      yield {
        action: `claim ${token}: no answer`,
        to: this.inDoubt(counted, late, { claims: [...world.claims, open] }),
      }
    }
  }

  private executeClaim(world: World, replica: string, token: string): Written {
    const { protections, database } = this
    const write = () => protections.commands.claim(this.terms, world.document!['phase'], token)
    const isWorking = world.document?.['phase'] === PHASE || world.document?.['phase'] === 'Deleting'
    const now = this.now(replica, world.tick)
    const document = isWorking ? database.execute(`claim ${token}`, write, world.document, now) : null
    if (!document) return { world, matched: false, broken: [] }
    const broken = hasRival(world) ? ['I6'] : []
    return { world: { ...world, document, epoch: world.epoch + 1, legacy: null }, matched: true, broken }
  }

  private task(
    world: World,
    { replica, claim, token, from }: Pick<Task, 'replica' | 'claim' | 'token' | 'from'>,
  ): Task {
    return { replica, claim, step: 1, token, fence: fenceOf(world.document!), epoch: world.epoch, from }
  }

  /** By its token it is read what it has won. */
  private *settleClaim(world: World, open: World['claims'][number]): Generator<Move<World>> {
    const action = `claim ${open.token}: read back`
    const closed = { ...world, claims: world.claims.filter((one) => one !== open) }
    if (world.document?.['lockedBy'] !== open.token) return yield { action, to: closed }
    const { replica, claim, token } = open
    const from = this.protections.ageCountsFromAnswer ? world.tick : open.from
    const task = { ...this.task(closed, { replica, claim, token, from }), epoch: open.epoch ?? world.epoch }
    const to = { ...closed, tasks: [...world.tasks, task] }
    yield { action, to, broken: twice(to) }
  }

  // ----- a step

  private *turn(world: World, task: Task): Generator<Move<World>> {
    const { bounds, protections } = this
    if (bounds.effects) yield this.effect(world, task)
    if (bounds.renewals) yield* this.renewals(world, task)
    if (task.doubt) return yield this.settle(world, task, task.doubt)
    const isWriting = world.checkpoints.some((open) => open.token === task.token)
    if (isWriting && protections.oneAtATime) return
    const mayFail = world.faults < (bounds.faults ?? 0)
    for (const kind of bounds.ends) {
      if (isWriting && kind !== 'error') continue // the handler waits for its checkpoint; only the guard gives it up
      if (kind === 'again' && world.epoch >= (bounds.epochs ?? bounds.claims + 2)) continue
      const next = kind === 'again' ? this.tokenAfter(task) : null
      yield this.end(world, task, kind, next)
      if (!mayFail) continue
      const late: Late = { what: 'end', kind, token: task.token, next, epoch: task.epoch }
      const doubtful = { ...task, doubt: { kind, token: task.token, next } }
      yield {
        action: `${kind} ${task.token}: no answer`,
        to: this.inDoubt(world, late, { tasks: replaced(world.tasks, task, doubtful) }),
      }
    }
    if (!bounds.checkpoints || isWriting || task.step > 1) return
    const next = this.tokenAfter(task)
    const { world: after, matched, broken } = this.execute(world, task, 'checkpoint', next)
    const went = matched ? { ...task, token: next, step: task.step + 1 } : undefined
    yield { action: `checkpoint ${task.token}`, to: { ...after, tasks: replaced(world.tasks, task, went) }, broken }
    if (!mayFail) return
    const late: Late = { what: 'end', kind: 'checkpoint', token: task.token, next, epoch: task.epoch }
    const open: OpenCheckpoint = { kind: 'checkpoint', token: task.token, next, epoch: task.epoch }
    const to = this.inDoubt(world, late, { checkpoints: [...world.checkpoints, open] })
    yield { action: `checkpoint ${task.token}: no answer`, to }
  }

  private tokenAfter({ replica, claim, step }: Task): string {
    return this.protections.tokenOf(replica, claim, step + 1)
  }

  private end(world: World, task: Task, kind: EndName, next: string | null): Move<World> {
    const action = `${kind} ${task.token}`
    const { world: after, matched, broken } = this.execute(world, task, kind, next)
    if (matched) {
      const stays = this.protections.unlocksUnderHandler && kind === 'released'
      return { action, to: stays ? after : this.recorded(after, task, next), broken }
    }
    if (!this.protections.readsBack) return { action, to: this.recorded(after, task, next), broken: ['I9'] }
    const trace = this.protections.traceOf(world.document ?? undefined, this.terms, {
      token: task.token,
      nextToken: next,
    })
    // Each answer was definite, so it is told as lost: then somebody else must have taken the document.
    if (trace === 'movedOn') {
      return { action, to: dropped(world, task), broken: world.epoch === task.epoch ? ['I10'] : [] }
    }
    if (trace === 'written') return { action, to: this.recorded(world, task, next), broken: ['I9'] }
    return { action, to: world }
  }

  /** Its step is over; or, with a next token, the next one begins. */
  private recorded(world: World, task: Task, next: string | null): World {
    if (next === null) return this.over(world, task)
    const { againRestartsAge } = this.protections
    const { doubt: _, ...known } = task
    const went: Task = {
      ...known,
      step: task.step + 1,
      token: next,
      fence: task.fence + 1,
      epoch: task.epoch + 1,
      from: againRestartsAge ? world.tick : task.from,
    }
    return { ...world, tasks: replaced(world.tasks, task, went) }
  }

  /** An effect of a step that has ended may still be on its way. */
  private over(world: World, task: Task): World {
    const { token, fence, epoch } = task
    const zombies = this.bounds.effects ? [...world.zombies, { token, fence, epoch }] : world.zombies
    return { ...dropped(world, task), zombies }
  }

  /** A write under a token. */
  private execute(world: World, by: Pick<Task, 'token' | 'epoch'>, kind: EndName, next: string | null): Written {
    const { commands } = this.protections
    const { token } = by
    const write = () => commands.end(this.terms, { kind: ENDS[kind], token, nextToken: next })
    const now = this.now(replicaOf(token), world.tick)
    const document = this.database.execute(`${kind} ${token} ${next}`, write, world.document, now)
    if (!document) return { world, matched: false, broken: [] }
    const broken = [...(world.epoch === by.epoch ? [] : ['I1']), ...(world.recorded > by.epoch ? ['I2'] : [])]
    const epoch = kind === 'again' ? world.epoch + 1 : world.epoch
    const to = { ...world, document, epoch, recorded: Math.max(world.recorded, by.epoch) }
    return { world: to, matched: true, broken: [...broken, ...stuck(to, this.database, this.terms)] }
  }

  /** What a read-back says of an end in doubt; where it wasn't executed it is sent again, until an answer comes. */
  private settle(world: World, task: Task, doubt: Doubt): Move<World> {
    const action = `${doubt.kind} ${task.token}: read back`
    const { token, next } = doubt
    const trace = this.protections.traceOf(world.document ?? undefined, this.terms, {
      token,
      nextToken: next,
    })
    if (trace === 'movedOn') return { action, to: forgotten(dropped(world, task), doubt) }
    if (trace === 'written') {
      const broken = world.executed.includes(idOf(doubt)) ? [] : ['I9']
      return { action, to: forgotten(this.recorded(world, task, next), doubt), broken }
    }
    const { world: after, matched, broken } = this.execute(world, task, doubt.kind, next)
    if (!matched) return { action, to: world }
    return { action, to: forgotten(this.recorded(after, task, next), doubt), broken }
  }

  private settleCheckpoint(world: World, open: OpenCheckpoint): Move<World> {
    const action = `checkpoint ${open.token}: read back`
    const task = world.tasks.find(({ token }) => token === open.token)
    const close = (to: World): World =>
      forgotten({ ...to, checkpoints: to.checkpoints.filter((one) => one !== open) }, open)
    const goOn = (to: World): World =>
      task && open.next !== null
        ? { ...to, tasks: replaced(to.tasks, task, { ...task, token: open.next, step: task.step + 1 }) }
        : to
    const write = { token: open.token, nextToken: open.next }
    const trace = this.protections.traceOf(world.document ?? undefined, this.terms, write)
    if (trace === 'movedOn') return { action, to: close(task && !task.doubt ? dropped(world, task) : world) }
    if (trace === 'written') {
      return { action, to: close(goOn(world)), broken: world.executed.includes(idOf(open)) ? [] : ['I9'] }
    }
    const { world: after, matched, broken } = this.execute(world, open, 'checkpoint', open.next)
    return matched ? { action, to: close(goOn(after)), broken } : { action, to: world }
  }

  // ----- renewals

  private *renewals(world: World, task: Task): Generator<Move<World>> {
    const { replica, claim } = task
    if (task.from === world.tick) return
    if (this.bounds.renewals === 'waiting') {
      if (world.faults >= (this.bounds.faults ?? 0)) return
      const late: Late = { what: 'renewal', replica, claim, startedAt: world.tick }
      return yield { action: `renewal of ${replica}#${claim} starts`, to: this.inDoubt(world, late, {}) }
    }
    const { world: after, matched, broken } = this.renew(world, replica, claim, world.tick)
    const to = matched ? after : { ...world, tasks: world.tasks.filter((one) => one !== task) }
    yield { action: `renewal of ${replica}#${claim}`, to, broken }
  }

  private renew(world: World, replica: string, claim: number, startedAt: number): Written {
    const write = () => this.protections.commands.renew(this.terms, replica, claim)
    const now = this.now(replica, startedAt)
    const document = this.database.execute(`renewal ${replica} ${claim}`, write, world.document, now)
    if (!document) return { world, matched: false, broken: [] }
    const tasks = world.tasks.map((one) =>
      one.replica === replica && one.claim === claim ? { ...one, from: Math.max(one.from, startedAt) } : one,
    )
    const to = { ...world, document, tasks }
    // What nobody works on must expire.
    const isOwn = world.tasks.some(
      (one) => one.replica === replica && one.claim === claim && (one.doubt || one.epoch === world.epoch),
    )
    const isOpen = world.claims.some((one) => one.replica === replica && one.claim === claim)
    const isMoved = document['lockedAt'] < world.document!['lockedAt']
    return { world: to, matched: true, broken: [...(isOwn || isOpen ? [] : ['I5']), ...(isMoved ? ['I6'] : [])] }
  }

  // ----- commands that come late

  private inDoubt(world: World, late: Late, more: Partial<World>): World {
    return { ...world, ...more, late: [...world.late, late], faults: world.faults + 1 }
  }

  private arrive(world: World, late: Late): Move<World> {
    const arrived = { ...world, late: world.late.filter((one) => one !== late) }
    switch (late.what) {
      case 'end': {
        const { world: to, matched, broken } = this.execute(arrived, late, late.kind, late.next)
        const isWatched = (one: { doubt?: Doubt | undefined }) =>
          one.doubt !== undefined && idOf(one.doubt) === idOf(late)
        const open = world.tasks.some(isWatched) || world.checkpoints.some((doubt) => isWatched({ doubt }))
        const executed = matched && open ? [...to.executed, idOf(late)] : to.executed
        return { action: `${late.kind} ${late.token} arrives`, to: { ...to, executed }, broken }
      }
      case 'claim': {
        const { world: to, matched, broken } = this.executeClaim(arrived, late.replica, late.token)
        const claims = to.claims.map((one) => (matched && one.token === late.token ? { ...one, epoch: to.epoch } : one))
        return { action: `claim ${late.token} arrives`, to: { ...to, claims }, broken }
      }
      case 'renewal': {
        const { world: to, broken } = this.renew(arrived, late.replica, late.claim, late.startedAt)
        // One that comes after its task has ended does no harm but to make the document wait.
        return {
          action: `renewal of ${late.replica}#${late.claim} arrives`,
          to,
          broken: broken.filter((one) => one !== 'I5'),
        }
      }
      case 'recovery':
        return this.others.recoveryArrives(arrived, late)
    }
  }

  private effect(world: World, task: Pick<Task, 'token' | 'fence' | 'epoch'>): Move<World> {
    const action = `effect of ${task.token}`
    if (task.fence < world.highestFence) return { action, to: world }
    const to = { ...world, highestFence: task.fence, highestEpoch: Math.max(task.epoch, world.highestEpoch) }
    return { action, to, broken: task.epoch < world.highestEpoch ? ['I3'] : [] }
  }

  /** The time by which a replica's command goes that the server begins at this tick. */
  private now(replica: string, tick: number): number {
    return tick + this.protections.aheadOf(replica)
  }
}

/** A command that has waited for longer than any lease is as one that has waited for a little longer than a lease. */
function olderBy1(late: Late): Late {
  const before = (tick: number) => Math.max(tick - 1, -LOCK_TIMEOUT - 1)
  if (late.what === 'renewal') return { ...late, startedAt: before(late.startedAt) }
  return late.what === 'recovery' ? { ...late, readAt: before(late.readAt) } : late
}

function keyOfOne(one: object): string {
  return Object.values(one)
    .map((value) => (typeof value === 'object' && value !== null ? keyOfOne(value) : value))
    .join(' ')
}

const replicaOf = (token: string): string => token.split('#')[0]!

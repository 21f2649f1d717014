import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Document } from 'mongodb'
import { sleep } from '../../dist/time/index.js'
import type { Peer } from '../faults/database-proxy.ts'
import { waitFor } from '../proof/wait-for.ts'
import { Member, type MemberOptions } from './member.ts'
import { mongodPath } from './mongod.ts'

/** MongoDB's default is 10 s: with 2 s a round takes seconds, and a primary that is paused for 4 s has a successor. */
const ELECTION_TIMEOUT_MS = 2_000
const HEARTBEAT_MS = 500
const STEPS_DOWN_FOR_S = 5
const WHOLE_WITHIN_MS = 60_000
/** A slow member gets this part of the time. */
const SLOW = { stoppedMs: 180, runningMs: 20 }
/** For a primary to notice that its disk is full: it writes something every second. */
const ENDS_WITHIN_MS = 60_000
const HEALTHY = new Set([1, 2]) // PRIMARY, SECONDARY

export interface ReplicaSetOptions extends Omit<MemberOptions, 'aheadSeconds'> {
  /** Default 3. One is enough where no election matters, and much lighter. */
  readonly members?: number
  readonly env?: NodeJS.ProcessEnv
  /** How far each member's clock is ahead. Default: not at all. */
  readonly aheadSeconds?: readonly number[]
}

/** Thrown by a fault that found no primary: it has hit nothing. */
export class NoPrimary extends Error {
  override readonly name = 'NoPrimary'
  constructor() {
    super('expected a primary that answers, found none')
  }
}

/**
 * Members on this machine, and what can happen to them. Each method returns when the fault is over and its member is back; whether the
 * set has elected a primary by then is the business of {@link isWhole}. @throws NoPrimary
 */
export class ReplicaSet {
  private readonly members: readonly Member[]
  private readonly dir: string

  private constructor(members: readonly Member[], dir: string) {
    this.members = members
    this.dir = dir
  }

  /** Without `hasProxy` there are no partitions, without `smallDisk` no full one. @throws NoMongod; NoSmallDisk */
  static async start({
    members: count = 3,
    env,
    aheadSeconds = [],
    ...options
  }: ReplicaSetOptions = {}): Promise<ReplicaSet> {
    const mongod = await mongodPath(env)
    const dir = await mkdtemp(join(tmpdir(), 'phaselock-replica-set-'))
    const dirs = Array.from({ length: count }, (_, i) => join(dir, String(i)))
    const starting = await Promise.allSettled(
      dirs.map((own, i) => Member.start(mongod, own, { ...options, aheadSeconds: aheadSeconds[i] })),
    )
    const members = starting.flatMap((one) => (one.status === 'fulfilled' ? [one.value] : []))
    const set = new ReplicaSet(members, dir)
    try {
      for (const one of starting) if (one.status === 'rejected') throw one.reason
      await set.initiate()
      return set
    } catch (error) {
      await set.close()
      throw error
    }
  }

  /** For any client; the driver finds the primary. What it has acknowledged survives an election: before 5.0 that isn't a server's default. */
  get uri(): string {
    return `mongodb://${this.members.map(({ host }) => host).join(',')}/?replicaSet=chaos&w=majority`
  }

  /**
   * All members answer, one as the primary, the others as its secondaries: as the primary sees them, and as each says of itself. A deposed
   * primary takes itself for one until it hears of its successor, and its successor takes it for a secondary as soon as it answers.
   */
  async isWhole(): Promise<boolean> {
    try {
      const primary = await this.primary()
      const { members } = await primary.command({ replSetGetStatus: 1 })
      const hellos = await Promise.all(this.members.map((member) => member.command({ hello: 1 })))
      return (
        members.length === this.members.length &&
        members.every(({ state }: { state: number }) => HEALTHY.has(state)) &&
        hellos.filter((hello) => hello['isWritablePrimary']).length === 1 &&
        hellos.filter((hello) => hello['secondary']).length === this.members.length - 1
      )
    } catch {
      return false
    }
  }

  /** A command of `admin`, at each member that answers. */
  async atEach(command: Document): Promise<void> {
    await Promise.allSettled(this.members.map((member) => member.command(command)))
  }

  async stepDown(): Promise<void> {
    const primary = await this.primary()
    // Its answer may be lost with the connection.
    await primary.command({ replSetStepDown: STEPS_DOWN_FOR_S, force: true }).catch(() => undefined)
  }

  /** Resolves when this member is the primary. */
  async elect(index: number): Promise<void> {
    const member = this.members[index]!
    const isElected = async () => {
      await member.command({ replSetStepUp: 1 }).catch(() => undefined) // refused while it lags
      return (await this.primary().catch(() => undefined)) === member
    }
    if (await waitFor(isElected, { forMs: WHOLE_WITHIN_MS, everyMs: 200 })) return
    throw new Error(`expected ${member.host} to be elected within a minute, it wasn't`)
  }

  async killPrimary(forMs: number): Promise<void> {
    await this.down([await this.primary()], forMs)
  }

  /** The primary and another: no majority is left, so nothing is accepted. */
  async killMajority(forMs: number): Promise<void> {
    const primary = await this.primary()
    const other = await this.secondary()
    await this.down([primary, other], forMs)
  }

  /**
   * Nothing more fits on the primary's disk, or that of its journal: it ends by itself at the next write that must reach it. There is room again after so long,
   * and it starts. Resolves to whether it had ended.
   */
  async fillPrimarysDisk(forMs: number): Promise<boolean> {
    const primary = await this.primary()
    if (!primary.disk) throw new Error("expected members on small disks, got the folder's")
    await primary.disk.fill()
    const hasEnded = await waitFor(() => !primary.isUp, { forMs: ENDS_WITHIN_MS })
    await sleep(forMs)
    await primary.disk.free()
    if (hasEnded) await primary.start()
    return hasEnded === true
  }

  /** SIGSTOP beyond the election timeout, then SIGCONT: it believes to be the primary until it hears of its successor. */
  async pausePrimary(forMs: number): Promise<void> {
    const primary = await this.primary()
    primary.pause()
    await sleep(forMs)
    primary.resume()
  }

  /**
   * The primary and some clients on one side, the others on theirs: nothing passes between them, and nothing is closed. What was on its way
   * arrives afterwards. The old primary stays one until it has missed the others for the election timeout.
   * @param isBeside whether the client with this address is on the primary's side
   */
  async partitionPrimary(isBeside: (address: Peer) => boolean, forMs: number): Promise<void> {
    const primary = await this.primary()
    const isHere = (peer: Peer) => (peer.startsWith(':') ? peer === primary.peer : isBeside(peer))
    for (const member of this.members) {
      const side = member === primary
      member.proxy?.setEach((peer) => ({ kind: isHere(peer) === side ? 'pass' : 'blackhole' }))
    }
    await sleep(forMs)
    for (const member of this.members) member.proxy?.set({ kind: 'pass' })
  }

  /**
   * What `work` writes to the primary is undone: the others are down meanwhile, elect one of them once it is down, and it follows that one
   * then. It steps down by itself after the election timeout.
   * @param work gets the primary's address
   * @throws Error if no other is elected within a minute, or the set isn't whole again a minute later: then nothing may be undone
   */
  async undone(work: (host: string) => Promise<void>): Promise<void> {
    const primary = await this.primary()
    const others = this.members.filter((member) => member !== primary)
    await this.checkpoint(primary)
    // Killed, not paused: what was sent would wait in their sockets.
    await Promise.all(others.map((member) => member.kill()))
    try {
      await work(primary.host)
    } finally {
      await primary.kill()
      await Promise.all(others.map((member) => member.start()))
      await this.elect(this.members.indexOf(others[0]!))
      await primary.start()
    }
    if (await waitFor(() => this.isWhole(), { forMs: WHOLE_WITHIN_MS, everyMs: 200 })) return
    throw new Error('expected the set to be whole within a minute after a rollback, it was not')
  }

  /** A member that is killed before its first checkpoint has nothing to start with, and no point to which it could roll back. */
  private async checkpoint(primary: Member): Promise<void> {
    const writeConcern = { w: this.members.length, j: true }
    await primary.command({ appendOplogNote: 1, data: { checkpoint: 1 }, writeConcern }, WHOLE_WITHIN_MS)
    for (const member of this.members) await member.command({ fsync: 1 }, WHOLE_WITHIN_MS)
  }

  /** A secondary that gets a tenth of the time. */
  async slowSecondary(forMs: number): Promise<void> {
    const secondary = await this.secondary()
    for (let leftMs = forMs; leftMs > 0; leftMs -= SLOW.stoppedMs + SLOW.runningMs) {
      secondary.pause()
      await sleep(SLOW.stoppedMs)
      secondary.resume()
      await sleep(SLOW.runningMs)
    }
  }

  /** As an upgrade does it: each secondary, then the primary, which hands over first. */
  async restartAll(): Promise<void> {
    const primary = await this.primary()
    const order = [...this.members.filter((member) => member !== primary), primary]
    for (const member of order) {
      await member.shutDown()
      await member.start()
      await waitFor(() => this.isWhole(), { forMs: WHOLE_WITHIN_MS, everyMs: 200 })
    }
  }

  /** A secondary loses its data, and fetches all from the others. */
  async resyncSecondary(): Promise<void> {
    const secondary = await this.secondary()
    await secondary.kill()
    await secondary.wipe()
    await secondary.start()
  }

  /** The member that says so of itself, unless a newer one has been elected. */
  private async primary(): Promise<Member> {
    const hellos = await Promise.all(
      this.members.map(async (member) => ({
        member,
        hello: await member.command({ hello: 1 }).catch(() => undefined),
      })),
    )
    const [latest] = hellos
      .filter(({ hello }) => hello?.['isWritablePrimary'])
      .sort((a, b) => String(b.hello?.['electionId']).localeCompare(String(a.hello?.['electionId'])))
    if (!latest) throw new NoPrimary()
    return latest.member
  }

  private async secondary(): Promise<Member> {
    const primary = await this.primary()
    return this.members.find((member) => member !== primary)!
  }

  private async down(members: readonly Member[], forMs: number): Promise<void> {
    await Promise.all(members.map((member) => member.kill()))
    await sleep(forMs)
    await Promise.all(members.map((member) => member.start()))
  }

  private async initiate(): Promise<void> {
    const config = {
      _id: 'chaos',
      members: this.members.map(({ host }, _id) => ({ _id, host })),
      settings: { electionTimeoutMillis: ELECTION_TIMEOUT_MS, heartbeatIntervalMillis: HEARTBEAT_MS },
    }
    await this.members[0]!.command({ replSetInitiate: config }, WHOLE_WITHIN_MS)
    if (await waitFor(() => this.isWhole(), { forMs: WHOLE_WITHIN_MS, everyMs: 100 })) return
    throw new Error('expected a replica set with a primary within a minute, got none')
  }

  async close(): Promise<void> {
    await Promise.all(this.members.map((member) => member.close()))
    await rm(this.dir, { recursive: true, force: true, maxRetries: 10 })
  }
}

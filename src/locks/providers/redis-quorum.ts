import { sleep } from '../../time/index.js'
import { AbandonedAcquisitions } from '../abandoned.js'
import { InvalidLockProvider } from '../errors.js'
import type { LockRecord } from '../lock-provider.js'
import type { Granted, LockStore, Request } from '../lock-store.js'
import { agreedRecord, majorityOf, tokensOf } from './quorum-records.js'
import type { RedisLockStore } from './redis.js'

/** How a quorum of Redis servers grants a lock. */
export interface QuorumOptions {
  /** The tries after a vote without a majority, before the caller is refused. Default 10. */
  readonly retryCount?: number | undefined
  /** The pause before such a try, in ms; each lasts between half of it and one and a half. Default 200. */
  readonly retryDelayMs?: number | undefined
  /** The part of lockAtMostFor by which clocks may run apart. Default 0.01; 2 ms are added. */
  readonly driftFactor?: number | undefined
}

const DRIFT_MS = 2
const GRACE_MS = 50

/** The answers of all servers to one question. */
interface Answers<T> {
  readonly given: readonly { readonly node: number; readonly answer: T }[]
  /** The servers that gave none. */
  readonly missing: readonly number[]
  readonly errors: readonly unknown[]
}

/**
 * Locks on several independent Redis servers, by Redlock: a lock is held while a majority of them has its token.
 * 1. take: ask all at the same time; with a majority, and time left, it is granted. Otherwise free what the minority granted; if no other token
 *    has a majority either, the vote was split: pause for a random time and ask again.
 * 2. Servers keep it for lockAtMostFor and the drift of clocks, so the holder's own lockAtMostFor ends first.
 * 3. A fence is the highest of the majority's, and is written back to a majority before the lock is granted: the next majority shares a server with this one,
 *    so its fence is higher.
 * 4. With less than a majority of answers nothing is granted, and the error says so.
 */
export class RedisQuorumStore implements LockStore {
  readonly kind = 'redis-quorum'
  private readonly majority: number
  private readonly abandoned: readonly AbandonedAcquisitions[]

  constructor(
    private readonly nodes: readonly RedisLockStore[],
    private readonly options: QuorumOptions = {},
  ) {
    if (nodes.length < 3)
      throw new InvalidLockProvider(
        `expected at least 3 Redis servers for a quorum, got ${nodes.length}: with fewer, one that is down ends all locks`,
      )
    const { retryCount = 0, retryDelayMs = 0, driftFactor = 0 } = options
    if (!Number.isInteger(retryCount) || retryCount < 0 || retryCount > 1_000)
      throw new InvalidLockProvider(`retryCount: expected a whole number from 0 to 1,000, got ${retryCount}`)
    if (!(retryDelayMs >= 0 && retryDelayMs <= 60_000))
      throw new InvalidLockProvider(`retryDelayMs: expected 0 to 60,000 ms, got ${retryDelayMs}`)
    if (!(driftFactor >= 0 && driftFactor < 1))
      throw new InvalidLockProvider(`driftFactor: expected 0 to less than 1, got ${driftFactor}`)
    this.majority = majorityOf(nodes.length)
    this.abandoned = nodes.map((node) => new AbandonedAcquisitions((...one) => node.free(...one)))
  }

  async take(request: Request): Promise<Granted | undefined> {
    const { retryCount = 10, retryDelayMs = 200 } = this.options
    for (let tries = 0; ; tries += 1) {
      const granted = await this.vote(request)
      if (granted !== 'split') return granted
      if (tries >= retryCount) return undefined
      await sleep(retryDelayMs * (0.5 + Math.random()))
    }
  }

  async free(name: string, token: string, atLeastMs: number): Promise<boolean> {
    const tries = this.nodes.map((node) => node.free(name, token, atLeastMs))
    return await this.freed(tries, name, token, atLeastMs)
  }

  async extend(name: string, token: string, atMostMs: number, atLeastMs: number): Promise<Date | undefined> {
    const driftMs = this.driftOf(atMostMs)
    const answers = await this.ask((node) => node.extend(name, token, atMostMs + driftMs, atLeastMs + driftMs), isThere)
    if (!this.isAgreed(answers, isThere)) return undefined
    const ends = answers.given.flatMap(({ answer }) => (answer ? [answer.getTime()] : []))
    return new Date(this.agreedEnd(ends) - driftMs)
  }

  async find(name: string): Promise<LockRecord | undefined> {
    const { given, missing } = await this.asked((node) => node.find(name))
    return agreedRecord(
      given.map(({ answer }) => answer),
      this.majority,
      missing.length,
    )
  }

  async holders(names: readonly string[]): Promise<Map<string, string>> {
    const { given, missing, errors } = await this.asked((node) => node.holders(names))
    const held = names.flatMap((name) => {
      const tokens = tokensOf(given.map(({ answer }) => answer.get(name)))
      const [most, second] = tokens.filter(({ count }) => count + missing.length >= this.majority)
      // A look that takes another holder for the lock's own would abort a task that still holds it.
      if (second) throw this.tooFew(errors)
      return most ? [[name, most.token] as const] : []
    })
    return new Map(held)
  }

  async list(): Promise<LockRecord[]> {
    const { given, missing } = await this.asked((node) => node.list())
    const names = new Set(given.flatMap(({ answer }) => answer.map(({ name }) => name)))
    return [...names].sort().flatMap((name) => {
      const records = given.map(({ answer }) => answer.find((record) => record.name === name))
      return agreedRecord(records, this.majority, missing.length) ?? []
    })
  }

  async release(found: LockRecord): Promise<boolean> {
    const tries = this.nodes.map((node) => node.release(found))
    return await this.freed(tries, found.name, found.lockedBy!, 0)
  }

  async close(): Promise<void> {
    await Promise.all(this.abandoned.map((one) => one.close()))
    await Promise.all(this.nodes.map((node) => node.close()))
  }

  /** One round of asking. @returns 'split' if neither this caller nor another one has a majority */
  private async vote(request: Request): Promise<Granted | 'split' | undefined> {
    const { name, token, lockAtMostForMs } = request
    const driftMs = this.driftOf(lockAtMostForMs)
    const asked = { ...request, lockAtMostForMs: lockAtMostForMs + driftMs }
    const { given, missing, errors } = await this.ask((node) => node.take(asked), isThere)
    const grants = given.flatMap(({ node, answer }) => (answer ? [{ node, ...answer }] : []))
    if (grants.length >= this.majority) {
      const fence = Math.max(...grants.map((grant) => grant.fence))
      const raised = await this.ask((node) => node.raiseFence(name, token, fence, lockAtMostForMs), isTrue)
      if (raised.given.filter(({ answer }) => answer).length >= this.majority)
        return {
          lockedAt: new Date(Math.min(...grants.map(({ lockedAt }) => lockedAt.getTime()))),
          lockUntil: new Date(this.agreedEnd(grants.map(({ lockUntil }) => lockUntil.getTime())) - driftMs),
          fence,
        }
    }
    await this.giveBack(name, token)
    // The answers that are missing may be the majority's.
    if (given.length < this.majority) throw this.tooFew(errors)
    const refusals = given.length - grants.length
    if (refusals + missing.length < this.majority) return 'split'
    const records = await this.ask((node) => node.find(name))
    const [most] = tokensOf(records.given.map(({ answer }) => answer?.lockedBy))
    return most && most.count + records.missing.length >= this.majority ? undefined : 'split'
  }

  /** Frees what was granted, or may have been. A server without an answer is asked again in the background. */
  private async giveBack(name: string, token: string): Promise<void> {
    const { missing } = await this.ask((node) => node.free(name, token, 0))
    for (const node of missing) this.abandoned[node]!.add(name, token)
  }

  /**
   * A majority's answer. Servers that stay without one are asked again in the background, because their keys would outlive the lock; after an error
   * none is, because the handle is still valid then.
   */
  private async freed(tries: readonly Promise<boolean>[], name: string, token: string, atLeastMs: number) {
    const answers = await this.ask((_, node) => tries[node]!, isTrue)
    const isFreed = this.isAgreed(answers, isTrue)
    for (const node of answers.missing) tries[node]!.catch(() => this.abandoned[node]!.add(name, token, atLeastMs))
    return isFreed
  }

  /** @throws the servers' errors if those without an answer could make the difference */
  private isAgreed<T>({ given, missing, errors }: Answers<T>, isYes: (answer: T) => boolean): boolean {
    const yes = given.filter(({ answer }) => isYes(answer)).length
    if (yes >= this.majority) return true
    if (yes + missing.length >= this.majority) throw this.tooFew(errors)
    return false
  }

  /** Asks a question that needs a majority of answers. */
  private async asked<T>(question: (node: RedisLockStore) => Promise<T>): Promise<Answers<T>> {
    const answers = await this.ask(question)
    if (answers.given.length < this.majority) throw this.tooFew(answers.errors)
    return answers
  }

  /**
   * Asks all servers at the same time. A server that is away must not hold up the others: once a majority agrees, the rest has 50 ms.
   * @param isYes a majority of equal answers decides; without it, a majority of any
   */
  private ask<T>(
    question: (node: RedisLockStore, index: number) => Promise<T>,
    isYes?: ((answer: T) => boolean) | undefined,
  ): Promise<Answers<T>> {
    const given: { node: number; answer: T }[] = []
    const failed = new Map<number, unknown>()
    const isDecided = () => {
      const yes = isYes ? given.filter(({ answer }) => isYes(answer)).length : given.length
      return Math.max(yes, given.length - yes) >= this.majority
    }
    return new Promise((resolve) => {
      let timer: NodeJS.Timeout | undefined
      const end = () => {
        clearTimeout(timer)
        const missing = this.nodes.map((_, node) => node).filter((node) => !given.some((one) => one.node === node))
        const errors = missing.map((node) => failed.get(node) ?? new Error('no answer while the others had theirs'))
        resolve({ given: [...given], missing, errors })
      }
      const settled = () => {
        if (given.length + failed.size === this.nodes.length) end()
        else if (isDecided()) timer ??= setTimeout(end, GRACE_MS)
      }
      this.nodes.forEach((one, node) => {
        question(one, node)
          .then(
            (answer) => given.push({ node, answer }),
            (error) => failed.set(node, error),
          )
          .then(settled)
      })
    })
  }

  /** The time until which a majority keeps it: the one that ends first in the majority that ends last. */
  private agreedEnd(ends: readonly number[]): number {
    return ends.toSorted((a, b) => b - a)[this.majority - 1]!
  }

  private driftOf(atMostMs: number): number {
    return Math.ceil(atMostMs * (this.options.driftFactor ?? 0.01)) + DRIFT_MS
  }

  private tooFew(errors: readonly unknown[]): Error {
    const words = [...new Set(errors.map((error) => (error as Error).message))].join('; ')
    return new Error(
      `expected answers from ${this.majority} of ${this.nodes.length} Redis servers, ${errors.length} gave none: ${words}`,
      { cause: errors[0] },
    )
  }
}

const isTrue = (answer: boolean) => answer
const isThere = (answer: unknown) => answer !== undefined

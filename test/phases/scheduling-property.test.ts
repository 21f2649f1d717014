import { describe, expect, jest, test } from '@jest/globals'
import type { Document } from 'mongodb'
import { Limits, lifecycleOf, OwnerClient } from '../../src/index.js'
import { LIMITS_COLLECTION, readLimits } from '../../src/lock/index.js'
import { pauseWork } from '../../src/operations/index.js'
import { backDate } from '../../src/testing/index.js'
import { eventually, useDatabase } from '../support/database.js'
import { randomNumbers } from '../support/random.js'
import { crashingReplicas } from './crashing-replicas.js'

jest.setTimeout(300_000)

interface Order {
  _id: string
  tenant: string
  rank: string
  rounds: number
  /** What each question was answered with, by the answer's comment; `timeout`: nobody answered. */
  heard?: string[]
}

const MOST = 4
const EACH = 2
const DOCUMENTS = 24
const CRASHES = 10
const RANKS = ['urgent', 'high', 'normal', 'low']

const order = lifecycleOf<Order>().define({
  name: 'order',
  collection: 'Order',
  phases: {
    Picking: { next: ['Asking'], limits: ['belt'] },
    Asking: { next: ['Picking', 'Sent'] },
    Sent: { rest: true },
  },
  limitBy: 'tenant',
  each: EACH,
  priorityBy: 'rank',
  maxAttempts: 1_000,
  maxClaims: 1_000,
})

describe('limits, ranks, pauses and questions beside crashes', () => {
  const database = useDatabase()
  const replicaThatCrashes = crashingReplicas(database)

  test.each([1, 2, 3, 4])(
    'never more at once than slots, nothing begins that is paused, each answer counts once and nothing is stuck (seed %i)',
    async (seed) => {
      const random = randomNumbers(seed)
      const orders = database.db.collection<Order & Document>('Order')
      const owner = new OwnerClient<Order & Document>(database.db, order.model)
      const limits = new Limits(database.db)
      const wrong: string[] = []
      let turn = 0
      /** Nothing here takes as long: what never ends fails by its name, long before the test's own bound. */
      const inTime = async <T>(what: string, work: Promise<T>): Promise<T> => {
        const late = Promise.withResolvers<never>()
        const timer = setTimeout(() => late.reject(new Error(`turn ${turn}: ${what} didn't end within 30 s`)), 30_000)
        return Promise.race([work, late.promise]).finally(() => clearTimeout(timer))
      }

      /** What runs, by whose handler; that of a replica that has crashed is over with its leases. */
      const running = new Map<object, { by: string; phase: string; tenant: string }>()
      const dead = new Set<string>()
      let slots = MOST
      /** What people have paused, and in which turn: from the look of the next one on it is in force. */
      const paused = new Map<string, number>()
      const accepted = new Map<string, { comment: string; option: string }>()
      let answers = 0

      const isPaused = (what: string) => turn - (paused.get(what) ?? turn) > 1
      const begun = (by: string, phase: string, { _id, tenant }: Readonly<Order>) => {
        if (dead.has(by)) return () => undefined // it knows nothing of that yet, and nothing that it writes counts
        const run = { by, phase, tenant }
        running.set(run, run)
        const all = [...running.values()]
        const onBelt = all.filter((one) => one.phase === 'Picking').length
        if (onBelt > slots) wrong.push(`turn ${turn}: ${onBelt} on the belt, of ${slots}`)
        const ofTenant = all.filter((one) => one.tenant === tenant).length
        if (ofTenant > EACH) wrong.push(`turn ${turn}: ${ofTenant} of ${tenant}`)
        for (const what of ['all', phase, tenant, _id]) {
          if (isPaused(what)) wrong.push(`turn ${turn}: ${_id} begins in ${phase}, though ${what} is paused`)
        }
        if (phase === 'Picking' && isPaused('belt'))
          wrong.push(`turn ${turn}: ${_id} begins, though the belt is paused`)
        return () => running.delete(run)
      }
      const soon = () => new Promise((resolve) => setTimeout(resolve, random() * 8))

      const handled = (by: () => string) =>
        order.handle({
          async Picking(doc, step) {
            const ended = begun(by(), 'Picking', doc as Order)
            await soon()
            ended()
            if (random() < 0.2) throw new Error('dropped')
            return random() < 0.2 ? step.wait('tape', { for: '10s' }) : step.moveTo('Asking')
          },
          async Asking(doc, step) {
            const ended = begun(by(), 'Asking', doc as Order)
            await soon()
            ended()
            const { _id, rounds, heard = [] } = doc as Order
            const round = `${_id}/${heard.length}`
            if (!step.answer)
              return step.ask({ question: `Send ${round}?`, options: ['yes', 'no'], timeout: '40s', onTimeout: 'no' })
            const { question, reason: comment, option, timedOut } = step.answer
            const known = accepted.get(round)
            if (question !== `Send ${round}?`) wrong.push(`${round} hears what ${question} was answered`)
            if (timedOut ? known : known?.comment !== comment || known?.option !== option)
              wrong.push(
                `${round} hears ${timedOut ? 'nothing' : `${option} (${comment})`}, not ${JSON.stringify(known)}`,
              )
            if (random() < 0.2) throw new Error('no van')
            const fields = { heard: [...heard, timedOut ? 'timeout' : comment!] }
            return step.moveTo(fields.heard.length < rounds ? 'Picking' : 'Sent', { set: fields })
          },
        })
      const up = async (left: () => number) => {
        let identity = ''
        const one = await replicaThatCrashes(
          left,
          handled(() => identity),
        )
        identity = one.replica.identity
        return one
      }

      const answerOne = async () => {
        const asked = await owner.questions()
        const one = asked[Math.floor(random() * asked.length)]
        if (!one) return
        const round = /^Send (.+)\?$/.exec(one.question)![1]!
        const option = random() < 0.2 ? 'maybe' : random() < 0.5 ? 'yes' : 'no'
        answers += 1
        const comment = `answer ${answers}`
        const question = random() < 0.2 ? 'another' : one.id
        const { kind } = await owner.answer(one._id as string, { option, by: 'ana', reason: comment, question })
        if (kind !== 'answered') return
        if (accepted.has(round) || option === 'maybe' || question === 'another')
          wrong.push(`${round}: ${comment} '${option}' was taken, beside ${JSON.stringify(accepted.get(round))}`)
        accepted.set(round, { comment, option })
      }
      const system = { db: database.db, models: [order.model], doorbell: 'off' as const }
      const pause = async (what: string, scope: object) => {
        await pauseWork(system, { lifecycle: 'order', by: 'ana', ...scope })
        paused.set(what, turn)
        if ('key' in scope) await givenBack(`order tenant=${what}`)
        if ('limit' in scope) await givenBack('belt')
      }
      /** What replicas have of a limit and don't use they give back within a second; they ask again before they use any. */
      const givenBack = (_id: string, down = 0) =>
        eventually(async () => {
          for (const { replica, isUp } of alive)
            if (!isUp() && !dead.has(replica.identity)) await over(replica.identity)
          const { limits: known } = await readLimits(database.db, [_id])
          const holders = known.flatMap((one) => one.holders).filter(({ by }) => !dead.has(by))
          const leased = holders.reduce((sum, one) => sum + one.slots, 0)
          expect(leased).toBeLessThanOrEqual(down)
        })
      const set = async (now: number) => {
        // Until they are given back replicas may use what they have, between ticks too: documents that waited for slots.
        slots = Math.max(slots, now)
        await limits.set('belt', { slots: now })
        await givenBack('belt', now)
        slots = now
      }
      const people = async () => {
        const dice = random()
        const tenant = `t${Math.floor(random() * 4)}`
        if (dice < 0.15) await set(Math.floor(random() * (MOST + 1)))
        else if (dice < 0.25) await pause('all', {})
        else if (dice < 0.35) await pause('Picking', { phase: 'Picking' })
        else if (dice < 0.45) await pause('belt', { lifecycle: undefined, limit: 'belt' })
        else if (dice < 0.55) await pause(tenant, { key: tenant })
        else if (dice < 0.6) await pause('o3', { id: 'o3' })
        else if (dice < 0.9) await resumed()
      }
      const resumed = async () => {
        for (const what of paused.keys()) {
          if (what === 'belt') await limits.resume('belt')
          else if (what.startsWith('t')) await limits.resume(`order tenant=${what}`)
          else if (what === 'Picking') await owner.resume({ phase: 'Picking' })
          else await owner.resume(what === 'all' ? {} : { id: what })
        }
        paused.clear()
      }
      /** The leases of a replica that has crashed are over, those of its slots too. */
      const over = async (by: string) => {
        dead.add(by)
        for (const [run, one] of running) if (one.by === by) running.delete(run)
        const holders = {
          $map: {
            input: { $ifNull: ['$holders', []] },
            in: { $mergeObjects: ['$$this', { $cond: [{ $eq: ['$$this.by', by] }, { until: '$$NOW' }, {}] }] },
          },
        }
        await database.db.collection(LIMITS_COLLECTION).updateMany({}, [{ $set: { holders } }])
      }

      const alive = [await up(random), await up(random), await up(random)]
      await set(MOST)
      await orders.insertMany(
        Array.from({ length: DOCUMENTS }, (_, i) => ({
          ...{ _id: `o${i}`, phase: 'Picking', tenant: `t${i % 4}`, rank: RANKS[i % 3]!, rounds: 1 + (i % 3) },
        })),
      )
      const left = () => orders.countDocuments({ phase: { $ne: 'Sent' } })
      let crashes = 0
      for (; turn < 400 && (crashes < CRASHES || (await left()) > 0); turn += 1) {
        const isCalm = crashes >= CRASHES
        if (isCalm && turn % 10 === 0) await resumed()
        if (isCalm && slots === 0) await set(1)
        if (!isCalm && (await left()) === 0)
          await orders.insertOne({ _id: `more${turn}`, phase: 'Picking', tenant: 't0', rank: 'low', rounds: 1 })
        const meanwhile = [inTime('an answer', answerOne()), inTime('an answer', answerOne())]
        await Promise.all([
          ...meanwhile,
          ...alive.map(async ({ replica, crashed }) => {
            const whole = replica.tick().then(() => replica.idle())
            await inTime(`${replica.identity}'s tick`, Promise.race([whole.catch(() => undefined), crashed]))
          }),
        ])
        for (const [i, one] of alive.entries()) {
          if (one.isUp()) continue
          crashes += 1
          void one.replica.stop()
          await inTime('the end of a crashed one', over(one.replica.identity))
          alive[i] = await inTime('the start of a replica', up(crashes < CRASHES ? random : () => 1e9))
        }
        if (!isCalm || turn % 3 === 0) await inTime('what people do', people())
        await inTime('the passing of time', backDate(orders as never, 15_000))
      }
      expect(wrong).toEqual([])
      expect(crashes).toBeGreaterThanOrEqual(CRASHES)
      expect(await left()).toBe(0)
      for (const { _id, rounds, heard } of await orders.find().toArray()) {
        const expected = Array.from({ length: rounds }, (_, i) => accepted.get(`${_id}/${i}`)?.comment ?? 'timeout')
        expect({ _id, heard }).toEqual({ _id, heard: expected })
      }
      await inTime('the stop', Promise.all(alive.map(({ replica }) => replica.stop())))
      await eventually(async () =>
        expect(
          await database.db.collection(LIMITS_COLLECTION).countDocuments({ 'holders.until': { $gt: new Date() } }),
        ).toBe(0),
      )
      expect(accepted.size).toBeGreaterThan(5)
    },
  )
})

import { expect, jest, test } from '@jest/globals'
import { sleep } from '../../src/time/index.js'
import { useDatabase } from '../support/database.js'
import { randomNumbers } from '../support/random.js'
import { TcpProxy } from '../support/tcp-proxy.js'
import { Fleet } from './fleet.js'
import { refuseUnhandledRejections } from './unhandled.js'

jest.setTimeout(240_000)

const SEED = Number(process.env['SEED'] ?? Math.floor(Math.random() * 2 ** 32))
const FAULTS = 16
const database = useDatabase()
refuseUnhandledRejections()

/** Each begins now, and resolves when it is over. */
const KINDS: Record<string, (proxy: TcpProxy, ms: number) => Promise<unknown>> = {
  'a write that never arrives': (proxy) => within(proxy.cutBefore('update')),
  'a write whose answer is lost': (proxy) => within(proxy.cutAfter('update')),
  'a claim whose answer is lost': (proxy) => within(proxy.cutAfter('findAndModify')),
  'a read that is cut': (proxy) => within(proxy.cutAfter('find')),
  'a write that comes late': async (proxy, ms) => {
    const held = await within(proxy.hold('update'))
    await sleep(ms)
    held?.release()
  },
  'a slow network': async (proxy, ms) => {
    proxy.slow(ms / 10)
    await sleep(ms)
    proxy.pass()
  },
  'connections refused': async (proxy, ms) => {
    proxy.refuse()
    await sleep(ms)
    proxy.pass()
  },
  'a dead switch': async (proxy, ms) => {
    proxy.blackhole()
    await sleep(ms)
    proxy.passNew()
  },
}

/** No fault waits for its victim for ever. */
const within = <T>(struck: Promise<T>): Promise<T | undefined> =>
  Promise.race([struck, sleep(1_000).then(() => undefined)])

test('random faults: all that replicas believe and say is true', async () => {
  const random = randomNumbers(SEED)
  const names = Object.keys(KINDS)
  const proxy = await TcpProxy.start(database.uri)
  const fleet = await Fleet.start(database, proxy, { checkpoints: true })
  const struck: string[] = []
  let isFault = false
  let isOver = false
  const sampling = (async () => {
    while (!isOver) {
      await fleet.sample(isFault)
      await sleep(250)
    }
  })()
  try {
    fleet.startLoad()
    await fleet.works(20)
    for (let n = 0; n < FAULTS; n += 1) {
      const name = names[Math.floor(random() * names.length)]!
      struck.push(name)
      isFault = true
      await KINDS[name]!(proxy, 100 + random() * 1_200)
      isFault = false
      await sleep(random() * 400)
    }
    await fleet.works(20)
    await fleet.drain()
    const { repeated, documents, ...wrong } = await fleet.account()
    // The seed tells how to see it again: SEED=... npm test -- random-faults
    expect({ seed: SEED, struck, ...wrong }).toEqual({
      seed: SEED,
      struck,
      lost: [],
      redone: [],
      overlapping: [],
      untrue: [],
    })
    expect(documents).toBeGreaterThan(20)
  } finally {
    isOver = true
    proxy.pass()
    await sampling
    await fleet.stop()
    await proxy.stop()
  }
})

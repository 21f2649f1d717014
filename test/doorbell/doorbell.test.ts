import { afterEach, beforeEach, describe, expect, test } from '@jest/globals'
import { type CommandSucceededEvent, type Db, MongoClient } from 'mongodb'
import {
  DOORBELL_COLLECTION,
  Doorbell,
  type DoorbellKind,
  type DoorbellOptions,
  type Hearing,
  type Listener,
  type Ring,
} from '../../src/doorbell/index.js'
import { EVERYTHING } from '../../src/doorbell/ring.js'
import { eventually, useDatabase } from '../support/database.js'
import { TcpProxy } from '../support/tcp-proxy.js'
import { ChangeStreamStandIn } from './change-stream-stand-in.js'

const database = useDatabase()

/** A listener to 'order' and what it has heard, over a client of its own, through a proxy. */
class Ear {
  readonly rings: Ring[] = []
  readonly hearings: Hearing[] = []
  /** Cursors that were opened, as a reply names them. */
  readonly cursors: unknown[] = []
  act: () => Promise<unknown> = async () => undefined

  private constructor(
    readonly proxy: TcpProxy,
    readonly client: MongoClient,
    readonly changeStreams: ChangeStreamStandIn | undefined,
  ) {}

  static async open(withChangeStreams: boolean): Promise<Ear> {
    const proxy = await TcpProxy.start(database.uri)
    const standIn = withChangeStreams ? new ChangeStreamStandIn(proxy) : undefined
    const client = await new MongoClient(proxy.uri, {
      monitorCommands: true,
      heartbeatFrequencyMS: 500,
      serverSelectionTimeoutMS: 5_000,
    }).connect()
    const ear = new Ear(proxy, client, standIn)
    client.on('commandSucceeded', ({ reply, commandName }: CommandSucceededEvent) => {
      if (commandName === 'find') ear.cursors.push((reply as { cursor: { id: unknown } }).cursor.id)
    })
    return ear
  }

  get db(): Db {
    return this.client.db(database.db.databaseName)
  }

  bell(more: Partial<DoorbellOptions> = {}): Doorbell {
    const mode = this.changeStreams ? 'changeStream' : 'capped'
    const onHearing = (hearing: Hearing) => void this.hearings.push(hearing)
    return new Doorbell({ db: this.db, mode, create: true, self: 'the listener', onHearing, ...more })
  }

  listen(bell = this.bell()): Listener {
    const listening = bell.listen(['order'], async (ring) => {
      this.rings.push(ring)
      await this.act()
    })
    listenings.push(listening)
    return listening
  }

  /** Resolves when it hears, after it has begun to listen so often. */
  async hears(times = 1): Promise<void> {
    await eventually(() => expect(this.rings.filter((ring) => ring.lifecycles.length === 0)).toHaveLength(times))
  }
}

let listenings: Listener[] = []
let ears: Ear[] = []

beforeEach(() => {
  listenings = []
  ears = []
})
afterEach(async () => {
  await Promise.all(listenings.map((listening) => listening.stop()))
  for (const { client, proxy } of ears) {
    await client.close()
    await proxy.stop()
  }
})

/** Somebody else. */
const ringer = (db: Db) => new Doorbell({ db, mode: 'capped', create: false, self: 'an owner' })
const entries = () => database.db.collection(DOORBELL_COLLECTION)

describe.each<[DoorbellKind, string]>([
  ['capped', 'a tailable cursor on a capped collection'],
  ['changeStream', 'a change stream (the server side of it stood in for)'],
])('%s: %s', (kind) => {
  let ear: Ear

  beforeEach(async () => {
    ear = await Ear.open(kind === 'changeStream')
    ears.push(ear)
  })

  test('stops at once although the server goes on waiting after its cursor was closed', async () => {
    const waiting = ear.proxy.hold('getMore')
    const listening = ear.listen()
    await ear.hears()
    await waiting
    await listening.stop()
    expect(ear.hearings.at(-1)).toEqual({ listening: false })
  })

  test('hears what is rung from now on, not what is old, not its own, not what concerns others', async () => {
    const { db } = ear
    const own = ear.bell()
    await ear.listen(own).stop()
    await entries().insertMany([{ lifecycles: ['order'], phases: ['Old'] }])

    ear.rings.length = 0
    ear.listen(own)
    await ear.hears()
    expect(ear.hearings.at(-1)).toEqual({ listening: true, kind })
    expect(ear.rings).toEqual([EVERYTHING])

    own.ring({ lifecycles: ['order'], phases: ['Mine'] })
    await own.flush()
    const other = ringer(db)
    other.ring({ lifecycles: ['invoice'] })
    await other.flush()
    other.ring({ lifecycles: ['order'], phases: ['Paying'] })
    await eventually(() => expect(ear.rings).toEqual([EVERYTHING, { lifecycles: ['order'], phases: ['Paying'] }]))
  })

  test('what is rung while it acts is one more call, and it never overlaps itself', async () => {
    let acting = 0
    let most = 0
    let go: () => void = () => undefined
    ear.act = async () => {
      acting += 1
      most = Math.max(most, acting)
      await new Promise<void>((resolve) => {
        go = resolve
      })
      acting -= 1
    }
    ear.listen()
    await ear.hears()
    for (let n = 0; n < 50; n += 1) await rungFor(ear.db, 'Busy')
    go()
    await eventually(() => expect(ear.rings).toHaveLength(2))
    ear.act = async () => undefined
    go()
    await rungFor(ear.db, 'Last')
    await eventually(() => expect(ear.rings.at(-1)?.phases).toContain('Last'))
    expect(ear.rings.length).toBeLessThanOrEqual(4)
    expect(most).toBe(1)
  })

  test('heals when its collection is dropped, and looks at everything then', async () => {
    const { db } = ear
    ear.listen()
    await ear.hears()
    await db.collection(DOORBELL_COLLECTION).drop()
    await ear.hears(2)
    expect(ear.hearings.map(({ listening }) => listening)).toEqual([true, false, true])
    ringer(db).ring({ lifecycles: ['order'], phases: ['Paying'] })
    await eventually(() => expect(ear.rings.at(-1)).toEqual({ lifecycles: ['order'], phases: ['Paying'] }))
    expect(await entries().options()).toMatchObject({ capped: true })
  })

  test('an idle one sends nothing but a getMore that waits', async () => {
    ear.listen()
    await ear.hears()
    await eventually(() =>
      expect(ear.proxy.seen.at(-1)).toMatchObject({ name: 'getMore', body: { maxTimeMS: 30_000 } }),
    )
  })
})

describe('a tailable cursor', () => {
  let ear: Ear

  beforeEach(async () => {
    ear = await Ear.open(false)
    ears.push(ear)
  })

  const rungAgain = async () => {
    ringer(database.db).ring({ lifecycles: ['order'], phases: ['Paying'] })
    await eventually(() => expect(ear.rings.at(-1)).toEqual({ lifecycles: ['order'], phases: ['Paying'] }))
  }

  test('that is killed is opened again', async () => {
    ear.listen()
    await ear.hears()
    await ear.db.command({ killCursors: DOORBELL_COLLECTION, cursors: [ear.cursors.at(-1)] })
    await ear.hears(2)
    await rungAgain()
  })

  test('that is overrun by a storm of others is opened again', async () => {
    let go: () => void = () => undefined
    ear.act = () =>
      new Promise<void>((resolve) => {
        go = resolve
      })
    ear.listen()
    await ear.hears()
    const storm = Array.from({ length: 3_000 }, () => ({ lifecycles: ['invoice'], by: 'a storm of others' }))
    await entries().insertMany(storm)
    ear.act = async () => undefined
    go()
    await ear.hears(2)
    expect(String((ear.hearings[1] as { error: unknown }).error)).toMatch(/CappedPosition|position/)
    expect(await entries().estimatedDocumentCount()).toBeLessThan(1_500)
    await rungAgain()
  })

  test('whose connection is cut is opened again', async () => {
    ear.listen()
    await ear.hears()
    ear.proxy.refuse()
    await eventually(() => expect(ear.hearings.at(-1)?.listening).toBe(false))
    ear.proxy.pass()
    await ear.hears(2)
    await rungAgain()
  })

  test('on a collection that an insert has made without a cap: it is made anew', async () => {
    await entries().insertOne({ lifecycles: ['order'] })
    ear.listen()
    await ear.hears()
    expect(await entries().options()).toMatchObject({ capped: true })
    await rungAgain()
  })

  test.each([
    ['of another shape', { note: 'keep this' }],
    ['with a field more than a ring has', { lifecycles: ['order'], phases: ['New'], note: 'keep this' }],
  ])('never drops a collection that holds a document %s, and says how to keep it', async (_name, kept) => {
    await database.db
      .collection(DOORBELL_COLLECTION)
      .insertMany([{ lifecycles: ['order'], by: 'x', at: new Date() }, kept])
    ear.listen()
    await eventually(() => expect(ear.hearings.length).toBeGreaterThanOrEqual(2)) // it has tried again
    for (const hearing of ear.hearings) {
      expect(hearing).toMatchObject({ error: { name: 'DoorbellUnavailable', found: "somebody else's" } })
    }
    expect(String((ear.hearings[0] as { error: Error }).error)).toContain('.renameCollection(')
    expect(ear.proxy.seen.filter(({ name }) => /create|drop|insert/.test(name))).toEqual([])
    expect(await entries().countDocuments(kept)).toBe(1)
    await entries().rename('doorbell.kept')
    await ear.hears()
    await rungAgain()
  })

  test.each([
    ['missing', async () => undefined],
    ['not capped', async () => void (await entries().insertOne({ lifecycles: ['order'] }))],
  ])(
    'is not to be had without rights to create where the collection is %s; it is when somebody has made it',
    async (found, make) => {
      await make()
      ear.listen(ear.bell({ create: false }))
      await eventually(() => expect(ear.hearings).toHaveLength(1))
      const { error } = ear.hearings[0] as { error: Error }
      expect(error).toMatchObject({ name: 'DoorbellUnavailable', found })
      expect(ear.proxy.seen.filter(({ name }) => /create|drop|insert/.test(name))).toEqual([])
      // As the message says.
      for (const command of error.message.split('who may: ')[1]!.split('; ')) {
        if (command.includes('drop')) await entries().drop()
        else await database.db.createCollection(DOORBELL_COLLECTION, { capped: true, size: 65_536 })
      }
      await ear.hears()
      await rungAgain()
    },
  )

  test('waits on a client of somebody else no longer than its sockets do', async () => {
    const shared = await new MongoClient(ear.proxy.uri, { socketTimeoutMS: 5_000 }).connect()
    try {
      ear.listen(ear.bell({ db: shared.db(database.db.databaseName) }))
      await ear.hears()
      await eventually(() => expect(ear.proxy.count('getMore')).toBeGreaterThan(1))
      expect(ear.proxy.seen.findLast(({ name }) => name === 'getMore')).toMatchObject({ body: { maxTimeMS: 4_000 } })
      expect(ear.hearings).toEqual([{ listening: true, kind: 'capped' }])
      await Promise.all(listenings.map((listening) => listening.stop()))
    } finally {
      await shared.close()
    }
  })
})

describe('the choice', () => {
  test("'auto' is a tailable cursor", async () => {
    const hearings: Hearing[] = []
    const bell = new Doorbell({
      db: database.db,
      mode: 'auto',
      create: true,
      self: 'me',
      onHearing: (hearing) => void hearings.push(hearing),
    })
    listenings.push(bell.listen(['order'], async () => undefined))
    await eventually(() => expect(hearings).toEqual([{ listening: true, kind: 'capped' }]))
  })

  test('of change streams, where the server refuses them, becomes a tailable cursor', async () => {
    const ear = await Ear.open(true)
    ears.push(ear)
    ear.changeStreams!.refusal = { ok: 0, code: 13, codeName: 'Unauthorized', errmsg: 'not authorized: changeStream' }
    ear.listen()
    await ear.hears()
    expect(ear.hearings).toMatchObject([
      { listening: false, error: { code: 13 } },
      { listening: true, kind: 'capped' },
    ])
  })
})

/** Stores a ring as it is, past the limiter. */
async function rungFor(db: Db, phase: string): Promise<void> {
  await db.collection(DOORBELL_COLLECTION).insertMany([{ lifecycles: ['order'], phases: [phase] }])
}

import { afterAll, beforeAll, expect, jest, test } from '@jest/globals'
import { AppFolder } from './app-folder.js'

jest.setTimeout(300_000)

/** One lifecycle with a recorded step, a wait and a step that outlasts its lease; prints what the document went through. */
const APP = `
import { lifecycleOf, Replica } from 'phaselock'
import { connectDatabase, renewalClient } from 'phaselock/database'

interface Film { _id: string; frames?: number }
const film = lifecycleOf<Film>().define({
  name: 'film',
  collection: 'Film',
  lockTimeout: '3s',
  phases: { Cutting: { next: ['Rendering'] }, Rendering: { next: ['Shown'] }, Shown: { rest: true } },
})
const films = film.handle({
  Cutting: async (_doc, step) => {
    if (step.name === undefined) return step.again({ step: 'wait' })
    return step.waitedMs < 300 ? step.wait('no scissors', { for: '300ms' }) : step.moveTo('Rendering')
  },
  Rendering: async (_doc, step) => {
    await new Promise((go) => setTimeout(go, 3_500))
    step.signal.throwIfAborted()
    return step.moveTo('Shown', { set: { frames: 24 } })
  },
})

const connection = await connectDatabase({ dataDir: process.argv[2], lockTimeout: '3s' })
const renewals = await renewalClient(connection)
const replica = new Replica({ db: connection.db, renewalDb: renewals.db(connection.db.databaseName), lifecycles: [films] })
await replica.start()
await films.insert({ _id: 'f1' })
let doc = await films.find('f1')
while (doc?.phase !== 'Shown') {
  await new Promise((go) => setTimeout(go, 100))
  doc = await films.find('f1')
}
console.log(doc.frames, doc.progress.history.map(({ outcome }) => outcome).join(' '))
await replica.stop()
await renewals.close()
await connection.close()
`

/** The model writes an order as any of its documents; Phaselock, on its own connection, carries it. */
const mongooseApp = (name: string, db = 'connection.db') => `
import mongoose from '${name}'
import { lifecycleOf, Replica } from 'phaselock'
import { connectDatabase } from 'phaselock/database'

const schema = new mongoose.Schema({ _id: String, phase: String, customer: String, paidAt: Date }, { collection: 'orders', timestamps: true })
const Order = mongoose.model('Order', schema)
const orders = lifecycleOf()
  .define({ name: 'order', collection: 'orders', phases: { Creating: { next: ['Created'] }, Created: { rest: true } } })
  .handle({ Creating: async (doc, step) => step.moveTo('Created', { set: { paidAt: new Date() } }) })

const connection = await connectDatabase({ dataDir: '.phaselock-${name}-${db}' })
await mongoose.connect(connection.uri)
const replica = new Replica({ db: ${db}, lifecycles: [orders] })
await Order.create({ _id: 'o1', phase: 'Creating', customer: 'Ann' })
await replica.runOnce()
const order = await Order.findById('o1')
console.log(order.phase, order.customer, order.paidAt instanceof Date)
order.customer = 'Anna'
await order.save()
const { phase, customer, fence } = await orders.find('o1')
console.log(phase, customer, fence > 0)
await replica.stop()
await mongoose.disconnect()
await connection.close()
`

let folder: AppFolder
beforeAll(async () => {
  folder = await AppFolder.make(['bun@1', 'deno@2', 'mongoose@9', 'mongoose8@npm:mongoose@8'], { type: 'module' })
  await folder.write('app.ts', APP)
})
afterAll(() => folder?.remove())

test.each([
  { name: 'Node', command: ['node'] },
  { name: 'Bun', command: ['bun'] },
  { name: 'Deno', command: ['deno', 'run', '--allow-all'] },
])('$name: TypeScript as it stands, with steps, waits, renewals and the local database', async ({ name, command }) => {
  const [program = '', ...args] = command
  const ran = await folder.run(program, ...args, 'app.ts', `.phaselock-${name}`)
  expect(ran).toMatchObject({ code: 0, out: '24 again wait moveTo moveTo\n' })
})

test.each([
  { name: 'Bun', command: ['bun', '--bun'] },
  { name: 'Deno', command: ['deno', 'run', '--allow-all'] },
])('$name: the command line', async ({ command }) => {
  const [program = '', ...args] = command
  const ran = await folder.run(program, ...args, 'node_modules/phaselock/dist/cli/main.js', '--help')
  expect(ran).toMatchObject({ code: 0, out: expect.stringContaining('set-lock-timeout') })
})

test.each(['mongoose', 'mongoose8'])(
  '%s: its models write and read the documents, whatever driver it brings',
  async (name) => {
    await folder.write(`${name}.mjs`, mongooseApp(name))
    const ran = await folder.run('node', `${name}.mjs`)
    expect(ran).toMatchObject({ code: 0, out: 'Created Ann true\nCreated Anna true\n' })
  },
)

test('mongoose8: a replica on its connection does nothing, and the error says what to do', async () => {
  await folder.write('theirs.mjs', mongooseApp('mongoose8', 'mongoose.connection.db'))
  const ran = await folder.run('node', 'theirs.mjs')
  expect(ran.code).toBe(1)
  expect(ran.err).toContain('DriverMismatch: expected a database of the mongodb driver that phaselock uses')
  expect(ran.err).toContain('give the replica a connection of its own, connectDatabase({ uri })')
})

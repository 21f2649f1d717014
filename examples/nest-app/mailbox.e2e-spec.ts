import { afterEach, beforeEach, expect, test } from '@jest/globals'
import { Test } from '@nestjs/testing'
import { race } from 'phaselock/testing'
import { AppKit, lifecycleInApp } from 'phaselock/testing/nest'
import { AppModule } from './app.module.js'
import { MailServer } from './mail-server.js'
import { mailbox } from './mailbox.js'
import { Mailboxes } from './mailboxes.js'

let ready: boolean
let calls: string[]

/** The test says when a box is ready. */
const fakeServer = () => ({
  createBox: async (address: string) => void calls.push(`create ${address}`),
  isReady: async (_address: string) => ready,
  removeBox: async (address: string) => void calls.push(`remove ${address}`),
})

/** The whole app, but for the mail server. */
const appWith = (server: object) =>
  Test.createTestingModule({ imports: [AppModule] })
    .overrideProvider(MailServer)
    .useValue(server)

let kit: AppKit

beforeEach(async () => {
  ready = false
  calls = []
  kit = await AppKit.start(appWith(fakeServer()))
  await kit.app.get(Mailboxes).create('ann')
})

afterEach(() => kit.close())

test('waits until the mail server has made the box', async () => {
  await kit.untilIdle()
  await kit.expectHistory('mailbox', 'ann', [
    { outcome: 'again' },
    { outcome: 'wait', reason: 'the mail server is not done yet' },
  ])
  ready = true
  await kit.untilPhase('mailbox', 'ann', 'Created')
  expect(await kit.app.get(Mailboxes).describe('ann')).toBe('ann: Created, ann@example.org')
})

test('gives up after five minutes: the box is removed', async () => {
  await kit.untilIdle()
  await kit.advance('5m')
  await kit.untilIdle()
  await kit.expectPhase('mailbox', 'ann', 'Deleted')
  expect(calls.at(-1)).toBe('remove ann@example.org')
})

test('a crash repeats the step that it interrupted', async () => {
  ready = true
  const crashed = kit.crash('make the box')
  await kit.untilIdle()
  await crashed
  await kit.advance('31s')
  await kit.untilIdle()
  await kit.expectPhase('mailbox', 'ann', 'Created')
  expect(calls).toEqual(['create ann@example.org', 'create ann@example.org'])
})

test('two replicas: wherever one dies or stands still, the other finishes the work', async () => {
  ready = true
  const report = await race({
    outside: fakeServer,
    lifecycle: (raced, db) => lifecycleInApp(appWith(raced), mailbox, db),
    document: { _id: 'ann', phase: 'Creating' },
    effectKey: () => undefined, // asking the mail server for a box twice is harmless
  })
  expect(report).toMatchObject({ runs: 9, twice: [], unfinished: [] })
})

import { describe, expect, test } from '@jest/globals'
import { Timestamp } from 'mongodb'
import { lifecycleOf } from '../../src/index.js'
import { PARKED_AT } from '../../src/lock/index.js'
import { explain } from '../../src/operations/index.js'

interface Gateway {
  _id: string
  state?: 'Running' | 'Deleted'
}

const { model } = lifecycleOf<Gateway>().define({
  name: 'gateway',
  collection: 'Gateway',
  phases: {
    Creating: { next: ['Created'], deadline: { after: '5m', moveTo: 'Created' } },
    Created: { rest: true },
    Starting: { next: ['Started'] },
    Started: { rest: true, deadline: { after: '1h', moveTo: 'Deleting' } },
    Deleting: { next: ['Deleted'] },
    Deleted: { final: true, keepFor: '1h' },
  },
  rules: [
    { when: 'Running', from: ['Created'], moveTo: 'Starting' },
    { when: 'Deleted', from: 'any', moveTo: 'Deleting' },
  ],
})

const now = new Date('2026-01-01T10:00:00Z')
const ago = (seconds: number) => new Date(now.getTime() - seconds * 1_000)
const said = (document: object) => explain({ _id: 'a', phase: 'Creating', ...document }, model, now, 30_000)

describe('what a document waits for, in one sentence', () => {
  test('due', () => {
    expect(said({})).toBe(
      'Due: the next replica that looks runs Creating; if it stays that way, no replica of gateway is running or all are busy.',
    )
    expect(said({ lockedAt: new Date(0), updatedAt: ago(12), progress: { step: 'domains' } })).toMatch(
      /^Due since 12 s: the next replica that looks runs the step 'domains' of Creating;/,
    )
    expect(said({ lockedAt: 'x' })).toMatch(/^Due:/)
  })

  test('due, because its lease or its sleep has run out', () => {
    expect(said({ lockedAt: ago(31), lockedBy: 'api~5f3a9c#7.2' })).toMatch(
      /^Due since 1 s \(the lease of api~5f3a9c \(claim 7, step 2\) has run out\): /,
    )
    expect(said({ lockedAt: ago(40) })).toMatch(/^Due since 10 s: /)
  })

  test('held, also at equality with due', () => {
    expect(said({ lockedAt: ago(2), lockedBy: 'api~5f3a9c#7.2', progress: { step: 'domains' } })).toBe(
      "Held by api~5f3a9c (claim 7, step 2), at its step 'domains': the lease was taken or renewed 2 s ago and ends in 28 s unless it is renewed.",
    )
    expect(said({ lockedAt: ago(30), lockedBy: 'somebody' })).toMatch(/^Held by somebody: /)
    expect(said({ lockedAt: ago(2), lockedBy: 'x', state: 'Deleted' })).toMatch(
      /; its owner wants Deleted, so it goes to Deleting as soon as nobody holds it\.$/,
    )
  })

  test('what is to be pasted into a shell is quoted where it has to be', () => {
    const _id = "o'brien 7"
    const question = { id: 'x', question: 'Ship it?', askedAt: ago(5) }
    const asleep = { _id, phase: 'Creating', lockedAt: new Date('9999-11-30T23:59:30Z') }
    expect(explain({ ...asleep, progress: { question } }, model, now, 30_000)).toContain(
      String.raw`(phaselock answer 'o'\''brien 7' <text>)`,
    )
    expect(explain({ ...asleep, progress: { question: 5 } }, model, now, 30_000)).toContain(
      String.raw`; phaselock wake 'o'\''brien 7' runs its step, which asks again`,
    )
    const pause = { what: 'document', _id, by: 'ana', reason: null, since: ago(5), until: null } as const
    expect(explain({ _id, phase: 'Creating' }, model, now, 30_000, { pauses: [pause] })).toContain(
      String.raw`(phaselock resume gateway 'o'\''brien 7')`,
    )
  })

  test('what an insert has left for it', () => {
    const held = { lockedAt: ago(2), lockedBy: 'x' }
    const next = { set: { n: 1, rows: [] }, begin: 'Creating', by: 'ana', at: ago(5) }
    expect(said({ ...held, progress: { next } })).toMatch(
      /; an insert by ana 5 s ago goes with the end of this step: new values of n, rows, and it begins again in Creating should it rest or be parked by then\.$/,
    )
    expect(said({ lockedAt: ago(40), lockedBy: 'x', progress: { next: { set: {}, at: ago(5) } } })).toMatch(
      /; an insert by somebody 5 s ago goes with its next claim: no new values\.$/,
    )
    expect(said({ lockedAt: PARKED_AT, progress: { next } })).toMatch(
      /^Parked because the server refuses what an insert has left for it \(a validator, a unique index, its size\): /,
    )
    expect(said({ ...held, progress: { next: 7 } })).toMatch(/: no new values\.$/)
  })

  test('sleeping: until when, why, since when', () => {
    const progress = { waitingFor: 'certificate not Ready', waitingSince: ago(120) }
    expect(said({ lockedAt: ago(25), progress })).toBe(
      "Sleeps, due in 5 s, waiting for 'certificate not Ready' since 2 min.",
    )
    expect(said({ lockedAt: ago(25), progress: { attempts: 3, error: { message: 'no route' } } })).toMatch(
      /, after error 3 of 20: 'no route'\.$/,
    )
    const causes = [{ name: 'Error', message: 'connect', code: 'ECONNREFUSED' }, 'odd']
    expect(said({ lockedAt: ago(25), progress: { error: { message: 'fetch failed', causes } } })).toMatch(
      /: 'fetch failed' \(caused by Error ECONNREFUSED: connect\)\.$/,
    )
    expect(said({ lockedAt: ago(25), progress: { since: ago(60) } })).toMatch(
      /; at its deadline, in 4 min, it goes to Created\.$/,
    )
    expect(said({ lockedAt: ago(25), state: 'Deleted' })).toMatch(
      /; its owner wants Deleted, so the next look moves it to Deleting before that\.$/,
    )
  })

  test('parked: why, and what gets it out', () => {
    const progress = { error: { message: 'quota' }, history: [{ outcome: 'park', reason: '20 errors: quota' }] }
    expect(said({ lockedAt: PARKED_AT, progress })).toBe(
      "Parked because '20 errors: quota': it waits for a person (unpark), or for its owner's state: Deleted leads to Deleting.",
    )
    expect(said({ lockedAt: PARKED_AT, progress: { history: 'x', error: 'y' } })).toMatch(/^Parked because somebody/)
    expect(said({ lockedAt: PARKED_AT })).toMatch(/^Parked because somebody set its lockedAt to 9999-12-31: /)
  })

  test('resting: which states lead where', () => {
    expect(said({ phase: 'Created' })).toBe(
      "Rests in Created (no state is set); waits for its owner's state: Running leads to Starting, Deleted leads to Deleting.",
    )
    expect(said({ phase: 'Created', state: 'Running' })).toBe(
      'Its owner wants Running: the next look moves it to Starting.',
    )
    expect(said({ phase: 'Started', state: 'Running', progress: { since: ago(60) } })).toMatch(
      /^Rests in Started \(its owner wants Running\); .*; at its deadline, in 59 min, it goes to Deleting\.$/,
    )
  })

  test('final: removed when', () => {
    expect(said({ phase: 'Deleted' })).toBe('Final: the next look removes it.')
    expect(said({ phase: 'Deleted', lockedAt: ago(-3_570) })).toBe('Final: removed in 1 h.')
  })

  test('an unknown phase', () => {
    expect(said({ phase: 'Creatng' })).toBe(
      "Its phase 'Creatng' is unknown to gateway; did you mean 'Creating': it is never claimed and never changed until its phase is one of Creating, Created, Starting, Started, Deleting, Deleted.",
    )
  })

  test.each([
    [{ phase: ['Creating'] }, "'phase' is an array, expected a string"],
    [{ phase: null }, "'phase' is null, expected a string"],
    [{ progress: 'mine' }, "'progress' is a string, expected an object written by Phaselock"],
    [{ progress: [1] }, "'progress' is an array"],
    [{ lockedAt: [now] }, "'lockedAt' is an array, expected a date, or nothing"],
    [{ lockedAt: new Timestamp({ t: 1, i: 1 }) }, "'lockedAt' is a Timestamp"],
  ])('a broken shape: %j', (document, problem) => {
    expect(said(document)).toContain(`Its shape is broken: ${problem}`)
  })

  test('progress of other types, and dates beyond JavaScript’s', () => {
    const odd = {
      attempts: {},
      claims: -5,
      error: { message: { a: 1 } },
      step: 5,
      waitingSince: 'x',
      waitingFor: { b: 1 },
    }
    const since = new Date(8.64e15)
    expect(said({ lockedAt: ago(-5), progress: { ...odd, since } })).toMatch(
      /^Sleeps, due .*, after error \{\} of \d+: '\{"a":1\}'; at its deadline, at a date outside the range of JavaScript, it goes to Created\.$/,
    )
    expect(said({ phase: 'Started', lockedAt: ago(-5), lockedBy: 'x', progress: { ...odd, since } })).toMatch(
      /^Held by x: /,
    )
    expect(said({ phase: 'Started', progress: { since } })).toContain('a date outside the range of JavaScript')
  })

  test('is always one sentence', () => {
    for (const document of [{}, { phase: 'Created' }, { phase: 'x' }, { lockedAt: PARKED_AT }]) {
      expect(said(document)).toMatch(/^[A-Z].*[^.]\.$/)
    }
  })
})

import { describe, expect, test } from '@jest/globals'
import { judgeFaults } from '../../chaos/faults/run-faults.ts'
import { judged } from '../../chaos/kubernetes/result.ts'
import { verdictText } from '../../chaos/proof/judgement.ts'
import { judgeDemo } from '../../chaos/proof/verdict.ts'
import { chaos } from './chaos.js'

const RESTFUL = 1
const STARVED = 4

const demo = {
  documents: 300,
  lost: 0,
  repeated: 0,
  overlapping: 0,
  refusedLateWrites: 9,
  refusedLateWritesOfOthers: 0,
  recoverySeconds: 5,
  handoverSeconds: 0.1,
  handoverOfAllSeconds: 0.1,
  stepsBegun: 100,
  stepsLongerThanLockTimeout: 9,
  leasesAtKill: 9,
  notBegunAtTerminate: 9,
  leasesAtPause: 9,
  lockTimeoutSeconds: 4,
  seconds: 30,
}
const faults = {
  documents: 30,
  lost: 0,
  repeated: 0,
  overlapping: 0,
  stuck: 0,
  crashed: 0,
  broken: 0,
  refusedLateWrites: 0,
  outOfOrder: 0,
  sections: 0,
  runs: 0,
  orders: 30,
  wrongOrders: 0,
  wrongTimed: 0,
  refusedByFence: 0,
  faults: { replicaKilled: 1 },
  leftOut: {},
  stepsBegun: 100,
  settledInSeconds: 1,
  lockTimeoutSeconds: 4,
  seconds: 60,
  minutes: 1,
  seed: 1,
  stoodStillMs: {},
  replicaSet: false,
  atWork: 3,
}
const latency = { count: 1, p50: 1, p95: 2 }
const kubernetes = {
  documents: 10,
  domains: 8,
  instances: 2,
  objects: 20,
  lost: 0,
  madeTwice: 0,
  leftOver: 0,
  leasesAtKill: 3,
  readyToCreatedMs: { withWatches: latency, withoutWatches: latency },
  kubernetes: 'v1',
  lockTimeoutSeconds: 10,
  seconds: 60,
}

const judgements = {
  demo: (more: object, slow: number) => judgeDemo({ ...demo, ...more }, { documents: 300 }, slow),
  faults: (more: object, slow: number) => judgeFaults({ ...faults, ...more }, slow),
  kubernetes: (more: object, slow: number) => judged({ ...kubernetes, ...more }, slow),
}

describe.each(['demo', 'faults', 'kubernetes'] as const)('the verdict of %s', (name) => {
  const judge = judgements[name]

  test('is shown where all is as it must be, however slow the machine was', () => {
    for (const slow of [RESTFUL, STARVED]) {
      expect(judge({}, slow)).toMatchObject({ verdict: 'shown', off: [], notShown: [] })
    }
  })

  test('is off where something is lost, and not shown where the machine had no time for it', () => {
    expect(judge({ lost: 2 }, RESTFUL)).toMatchObject({
      verdict: 'off',
      off: ['lost: expected 0, got 2'],
      notShown: [],
    })
    expect(judge({ lost: 2 }, STARVED)).toMatchObject({
      verdict: 'not shown',
      off: [],
      notShown: [expect.stringContaining('4.0 times as long for lack of CPU time'), 'lost: expected 0, got 2'],
    })
  })

  test('is off for what must never be, on a starved machine too', () => {
    const figure = name === 'kubernetes' ? 'madeTwice' : 'repeated'
    expect(judge({ lost: 2, [figure]: 1 }, STARVED)).toMatchObject({
      verdict: 'off',
      off: [`${figure}: expected 0, got 1`],
    })
  })
})

test.each([
  ['no replica had started', { stepsBegun: 0, atWork: 0, lost: 4, stuck: 4 }, 'expected steps to begin, got none'],
  ['no fault found anything to strike', { faults: {} }, 'expected faults that strike, got none'],
  ['replicas were still starting at the end', { atWork: 1, stuck: 3 }, /expected 3 replicas at work .*, got 1/],
])('faults are not shown where %s', (_, more, reason) => {
  const { verdict, off, notShown } = judgements.faults(more, RESTFUL)
  expect({ verdict, off }).toEqual({ verdict: 'not shown', off: [] })
  expect(notShown.join()).toMatch(reason)
})

test('a kill that hit nothing shows nothing', () => {
  expect(judgements.kubernetes({ leasesAtKill: 0 }, RESTFUL)).toMatchObject({ verdict: 'not shown', off: [] })
})

test('how long something takes is off beyond its bound, which grows with the slowness, and says nothing of a starved machine', () => {
  const late = { recoverySeconds: 8, handoverSeconds: 4.5, refusedLateWritesOfOthers: 1 }
  expect(judgements.demo(late, RESTFUL)).toMatchObject({
    verdict: 'off',
    off: [
      'refusedLateWritesOfOthers: expected 0, got 1',
      'recoverySeconds: expected <= 6, got 8',
      'handoverSeconds: expected <= 3, got 4.5',
    ],
  })
  expect(judgements.demo({ handoverSeconds: 4.5 }, 1.6)).toMatchObject({ verdict: 'shown', slow: [] })
  expect(judgements.demo({ ...late, recoverySeconds: 40 }, STARVED)).toMatchObject({
    verdict: 'shown',
    off: [],
    slow: ['refusedLateWritesOfOthers: expected 0, got 1', 'recoverySeconds: expected <= 12, got 40'],
  })
  const never = 'recoverySeconds: expected <= 6, got none: it never happened'
  expect(judgements.demo({ recoverySeconds: null }, RESTFUL)).toMatchObject({ verdict: 'off', off: [never] })
  expect(judgements.demo({ recoverySeconds: null }, STARVED)).toMatchObject({ verdict: 'not shown', slow: [] })
})

test('each verdict has a text of its own', () => {
  expect(verdictText({ verdict: 'shown', off: [], notShown: [], slow: [] }, ['All is well.'])).toEqual(['All is well.'])
  expect(verdictText({ verdict: 'off', off: ['a'], notShown: [], slow: [] }, [])).toEqual(['Off:', '  a'])
  expect(verdictText({ verdict: 'not shown', off: [], notShown: ['b'], slow: [] }, [])).toEqual([
    'Could not be shown (which is not a failure: run it again, on a less busy machine):',
    '  b',
  ])
  expect(verdictText({ verdict: 'shown', off: [], notShown: [], slow: ['c'] }, ['All is well.'])).toEqual([
    'All is well.',
    'Slow:',
    '  c',
  ])
})

test.each([[['--json']], [[]]])(
  'a run that could not begin says so, with an exit code of its own (%j)',
  async (more) => {
    const { code, out, err } = await chaos(['--kubernetes', ...more], { KUBECONFIG: '/nowhere/kubeconfig' })
    expect(code).toBe(3)
    if (more.length > 0) expect(JSON.parse(out)).toMatchObject({ verdict: 'not shown', error: { exitCode: 3 } })
    else expect(err).toMatch(/chaos: could not be shown: /)
  },
)

import { expect, test } from '@jest/globals'
import { ObjectId } from 'mongodb'
import { figuresOf } from '../../src/cli/demo/ledger.js'

const at = (ms: number) => new Date(1_000_000 + ms)
const run = (tenant: string, phase: string, began: number, ended?: number) => ({
  ...{ _id: new ObjectId(), tenant, phase, beganAt: at(began) },
  ...(ended !== undefined && { endedAt: at(ended) }),
})
const moved = (from: string) => ({ from, outcome: 'moveTo' })
const ready = { phase: 'Ready', progress: { history: ['Storage', 'Certificate', 'Pods'].map(moved) } }

test.each([
  ['all went well', [ready], [run('a', 'Storage', 0, 5), run('a', 'Pods', 5, 9)], {}],
  ['a tenant is not ready', [ready, { phase: 'Pods' }], [], { lost: 1 }],
  [
    'a step was recorded twice',
    [{ phase: 'Ready', progress: { history: [moved('Storage'), moved('Pods'), moved('Pods')] } }],
    [],
    { repeated: 1 },
  ],
  [
    'tries that failed are no steps',
    [{ ...ready, progress: { history: [{ from: 'Storage', outcome: 'error' }] } }],
    [],
    {},
  ],
  ['one ran within another', [ready], [run('a', 'Pods', 0, 9), run('a', 'Pods', 4, 6)], { overlapping: 1 }],
  ['another tenant at the same time', [ready], [run('a', 'Pods', 0, 9), run('b', 'Pods', 4, 6)], {}],
  ['a run whose replica died has no end', [ready], [run('a', 'Pods', 0), run('a', 'Pods', 4, 6)], {}],
])('the ledger of the demo: %s', (_, tenants, runs, expected) => {
  const zeros = { lost: 0, repeated: 0, overlapping: 0 }
  expect(figuresOf(tenants, runs)).toEqual({ ...zeros, ...expected, stepsBegun: runs.length })
})

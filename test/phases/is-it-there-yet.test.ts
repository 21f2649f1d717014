import { expect, test } from '@jest/globals'
import type { ChildrenDone, ChildrenRemoved, Reached } from 'phaselock'
import { type Readiness, type Removal, readinessOf, removalOf } from 'phaselock/kubernetes'
import { decide } from '../../src/phases/step/children.js'
import { order, useChildren } from './children-fixture.js'

type Answer = ChildrenDone | ChildrenRemoved | Reached | Readiness | Removal
// A check of the types: each of them has both fields, whatever else it has.
const bothOf = ({ done, text }: Answer): [boolean, string] => [done, text]

const MAP = { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'm' } }
const counts = { total: 1, succeeded: 1, failed: 0, parked: 0, open: 0, removed: 0 }

test('whether something is there yet has one shape', () => {
  expect([
    bothOf(decide('allDone', counts, 'waits')),
    bothOf(readinessOf(MAP)),
    bothOf(removalOf(MAP, undefined)),
    bothOf(removalOf(MAP, MAP)),
  ]).toEqual([
    [true, '1 of 1 child has ended'],
    [true, 'ConfigMap m is ready'],
    [true, 'ConfigMap m is gone'],
    [false, 'ConfigMap m is still there'],
  ])
})

test.each([
  ['childrenDone: expected done, got decided', () => Object(decide('allDone', counts, 'waits')).decided],
  ['ready: expected done, got ready', () => Object(readinessOf(MAP)).ready],
  ['ready: expected text, got reason', () => Object(readinessOf(MAP)).reason],
  ['remove: expected done, got gone', () => Object(removalOf(MAP, MAP)).gone],
  ['remove: expected text, got reason', () => Object(removalOf(MAP, MAP)).reason],
])('a former field is refused: %s', (message, read) => {
  expect(read).toThrow(message)
})

const { prepared, orders, stored } = useChildren()
test('a former field is refused in a step, whose handler would wait forever by it', async () => {
  const asking = order.handle({
    async Shipping(_doc, step) {
      const there = (await step.waitFor(order.at('p', 'Shipped'))) as Reached & { readonly reached: boolean }
      return there.reached ? step.moveTo('Shipped') : step.wait(there.text)
    },
  })
  const replica = await prepared([asking])
  await orders().insertOne({ _id: 'o', phase: 'Shipping' })
  await replica.runOnce()
  const message = 'waitFor: expected done, got reached: it is called done now'
  expect(await stored()).toMatchObject({ progress: { error: { name: 'InvalidOptions', message } } })
})

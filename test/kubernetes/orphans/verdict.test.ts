import { expect, test } from '@jest/globals'
import type { ObjectMeta } from '../../../src/kubernetes/index.js'
import { type SweepRules, verdictOn } from '../../../src/kubernetes/orphans/verdict.js'
import { lifecycleOf } from '../../../src/phases/index.js'

const { model } = lifecycleOf<{ _id: string }>().define({
  name: 'thing',
  collection: 'Thing',
  phases: { Creating: { next: ['Done'] }, Done: { final: true } },
})

const HOUR_MS = 3_600_000
const NOW = new Date('2026-11-22T12:00:00Z')
const RULES: SweepRules = { olderThanMs: HOUR_MS, ended: true, emptyCollections: false }

function verdict(metadata: Partial<ObjectMeta>, kind = 'ConfigMap', phases: readonly [string, unknown][] = []) {
  const creationTimestamp = new Date(NOW.getTime() - 2 * HOUR_MS).toISOString()
  const object = { apiVersion: 'v1', kind, metadata: { name: 'a', creationTimestamp, ...metadata } }
  const presence = { now: NOW, phases: new Map(phases), isEmpty: false, registeredIn: 'Thing' }
  return verdictOn(object, { model, id: 'a' }, presence, RULES)
}
const fenced = (at: number) => ({ annotations: { 'phaselock.dev/fence': String(at * 1_000) } })

test('an object is as young as the last claim that wrote it, whenever it was made', () => {
  expect(verdict(fenced(NOW.getTime() - 2 * HOUR_MS))).toMatchObject({ why: 'gone', kept: undefined })
  expect(verdict(fenced(NOW.getTime() - HOUR_MS + 1))!.kept).toMatch(/^younger than 1 h/)
  // Of a clock that is ahead, or of no time at all.
  expect(verdict({ creationTimestamp: '2026-11-22T12:00:01Z' })!.kept).toMatch(/^younger/)
  expect(verdict({ creationTimestamp: undefined })!.kept).toMatch(/^younger/)
})

test('only a document that is gone or final leaves orphans', () => {
  for (const phase of ['Creating', 'of a newer version', 7, undefined]) {
    expect(verdict({}, 'ConfigMap', [['sa', phase]])).toBeUndefined()
  }
  expect(verdict({}, 'ConfigMap', [['sa', 'Done']])).toMatchObject({ why: 'ended', kept: undefined })
})

test('what takes more along is left to a person; what is on its way out names what holds it', () => {
  expect(verdict({}, 'Namespace')!.kept).toMatch(/remove it by hand/)
  expect(verdict({}, 'CustomResourceDefinition')!.kept).toMatch(/remove it by hand/)
  const leaving = { deletionTimestamp: NOW.toISOString(), finalizers: ['example.com/hold'] }
  expect(verdict(leaving)!.kept).toBe('on its way out, held by example.com/hold')
})

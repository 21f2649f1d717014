import { readFile } from 'node:fs/promises'
import { resolve } from 'node:path'
import { expect, test } from '@jest/globals'
import { lifecycleOf } from '../../src/index.js'
import { settingsSchema } from '../../src/phases/model/settings.js'

const page = await readFile(resolve(import.meta.dirname, '../../docs/lifecycles.md'), 'utf8')

test('every setting of a lifecycle stands on the page, with its default', () => {
  const rows = new Map([...page.matchAll(/^\| `(\w+)` \| (.*?) \|/gm)].map(([, name, value]) => [name, value]))
  expect([...rows.keys()].sort()).toEqual(Object.keys(settingsSchema.fields).sort())
  const { lockTimeoutMs, stepTimeoutMs, maxAttempts, maxClaims, concurrency } = lifecycleOf().define({
    name: 'x',
    collection: 'X',
    phases: { A: { rest: true } },
  }).model.settings
  expect({ lockTimeoutMs, stepTimeoutMs }).toEqual({ lockTimeoutMs: 30_000, stepTimeoutMs: 300_000 })
  expect(rows.get('lockTimeout')).toBe('`30s`')
  expect(rows.get('stepTimeout')).toBe('`5m`')
  expect(['maxAttempts', 'maxClaims', 'concurrency'].map((name) => rows.get(name))).toEqual(
    [maxAttempts, maxClaims, concurrency].map(String),
  )
})

test('the lifecycle on the page can be defined', () => {
  const spec = /define\((\{[\s\S]*?\n\})\)/.exec(page)?.[1]
  const define = lifecycleOf<{ state?: string }>().define as unknown as (spec: unknown) => {
    model: { rules: readonly unknown[] }
  }
  expect(define(new Function(`return ${spec}`)()).model.rules).toHaveLength(5)
})

import { readFile } from 'node:fs/promises'
import { resolve } from 'node:path'
import { expect, test } from '@jest/globals'
import * as core from '../../src/index.js'

test('the package has these entries', async () => {
  const { exports } = JSON.parse(await readFile(resolve(import.meta.dirname, '../../package.json'), 'utf8'))
  expect(Object.keys(exports).sort()).toEqual([
    '.',
    './api-gateway',
    './database',
    './kinds',
    './kubernetes',
    './locks',
    './locks/nest',
    './nest',
    './package.json',
    './schedules',
    './schedules/nest',
    './telemetry',
    './testing',
  ])
})

test('the main entry has what an app defines, runs and owns its documents with, and none of the engine', () => {
  expect(Object.keys(core).sort()).toEqual([
    'BadQueryPlan',
    'BoundLifecycle',
    'InvalidDocument',
    'InvalidLifecycle',
    'InvalidOutcome',
    'InvalidReplicaOptions',
    'InvalidThread',
    'LeaseLost',
    'MissingIndexes',
    'NotAttached',
    'OverlappingLifecycles',
    'OwnerClient',
    'Replica',
    'StepAborted',
    'StepTimeout',
    'TASK_LOCK_INIT_TIME',
    'ThreadDied',
    'Unavailable',
    'UnsupportedNode',
    'lifecycleOf',
    'silentLogger',
    'thread',
  ])
})

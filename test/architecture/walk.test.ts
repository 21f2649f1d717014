import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { expect, test } from '@jest/globals'
import { useDatabase } from '../support/database.js'

/** The most files that a plain claim may touch. They only ever go down: a file more is a special case on everybody's way. */
const BEFORE_THE_HANDLER = 49
const UNTIL_STORED = 57

const database = useDatabase()

test('a plain claim walks through few files until its handler begins, and until its outcome is stored', async () => {
  const program = join(import.meta.dirname, 'walk.mjs')
  const { stdout } = await promisify(execFile)(process.execPath, [program, database.uri])
  const { beforeHandler, untilStored } = JSON.parse(stdout) as Record<string, string[]>
  expect(beforeHandler).toContain('phases/engine/claim/claimer.js')
  expect(untilStored).toContain('lock/end/end-writer.js')
  const tooMany = (files: readonly string[] = [], most: number) => (files.length > most ? files : [])
  expect(tooMany(beforeHandler, BEFORE_THE_HANDLER)).toEqual([])
  expect(tooMany(untilStored, UNTIL_STORED)).toEqual([])
})

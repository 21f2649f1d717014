import { describe, expect, it } from '@jest/globals'
import type { Db } from 'mongodb'
import { requireServerVersion, ServerTooOld } from '../../src/database/index.js'
import { useDatabase } from '../support/database.js'

describe('requireServerVersion', () => {
  const test = useDatabase()

  it('gives the version of the server', async () => {
    expect(await requireServerVersion(test.db)).toMatch(/^\d+\.\d+\.\d+/)
  })

  // No such server can be had here: only its answer is made up.
  const answering = (version: unknown) => ({ command: async () => ({ version }) }) as unknown as Db

  it.each(['5.0.0', '5.0.31', '6.0.4', '10.0.0', '9.0.0-alpha0'])('takes %s', async (version) => {
    expect(await requireServerVersion(answering(version))).toBe(version)
  })

  it.each(['4.4.29', '4.9.0', '3.6.23', 'unknown', undefined])('refuses %s, and names it', async (version) => {
    const error = await requireServerVersion(answering(version)).catch((thrown: unknown) => thrown)
    expect(error).toBeInstanceOf(ServerTooOld)
    expect((error as ServerTooOld).version).toBe(String(version))
    expect(String(error)).toContain(`expected a MongoDB server of version 5.0 or later, got ${version}`)
  })
})

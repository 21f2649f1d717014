import { describe, expect, test } from '@jest/globals'
import { explore } from '../explore.js'
import { LeaseMachine } from './machine.js'
import { PROTECTED } from './protections.js'
import { MUTATIONS, WORLDS } from './worlds.js'

describe('no invariant is broken in any state that can be reached', () => {
  test.each(Object.entries(WORLDS))('%s', (_name, bounds) => {
    const { broken } = explore(new LeaseMachine(PROTECTED, bounds))
    expect(broken).toEqual({})
  })
})

describe('a protection taken away breaks one', () => {
  test.each(MUTATIONS)('without $without: $breaks ($world)', ({ world, breaks, protections }) => {
    const machine = new LeaseMachine({ ...PROTECTED, ...protections }, WORLDS[world])
    const { broken } = explore(machine, { until: breaks })
    expect(Object.keys(broken)).toContain(breaks)
  })
})

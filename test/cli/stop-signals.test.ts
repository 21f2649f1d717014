import { describe, expect, test } from '@jest/globals'
import { StopSignals } from '../../src/cli/start/stop-signals.js'
import { silentLogger } from '../../src/index.js'

function signals() {
  const world = { ms: 0, exits: [] as number[] }
  const clock = { now: () => new Date(0), monotonicMs: () => world.ms }
  return { world, stop: new StopSignals(silentLogger, clock, (code) => void world.exits.push(code)) }
}

describe('the signals that stop a replica', () => {
  test('the first asks for an orderly stop, whatever else comes of it', async () => {
    const { world, stop } = signals()
    stop.received('SIGTERM')
    world.ms = 5_000
    stop.received('SIGTERM')
    expect(await stop.stopped).toBe('SIGTERM')
    expect(world.exits).toEqual([])
  })

  test('a second SIGINT exits at once with 130; within half a second it is the same Ctrl-C, passed on by npm', () => {
    const { world, stop } = signals()
    stop.received('SIGINT')
    world.ms = 400
    stop.received('SIGINT')
    expect(world.exits).toEqual([])
    world.ms = 501
    stop.received('SIGINT')
    expect(world.exits).toEqual([130])
  })

  test('under npm the end of the parent is a SIGTERM: a shell between them does not pass it on', async () => {
    const { stop } = signals()
    let parent = 7
    stop.watchParent({ npm_execpath: '/npm' }, () => parent)
    parent = 1
    const keepsAlive = setTimeout(() => undefined, 20_000)
    expect(await stop.stopped).toBe('SIGTERM')
    clearTimeout(keepsAlive)
  })
})

import { expect, test } from '@jest/globals'
import { OutageLog } from '../../src/phases/reporting/bounded-log.js'
import { ManualClock } from '../lock/fixture.js'
import { recordingLogger } from '../support/thing.js'

function outageLog() {
  const [clock, logger] = [new ManualClock(), recordingLogger()]
  const outage = new OutageLog('the tick', clock, logger)
  return { clock, outage, said: () => logger.lines.map(({ level, message }) => `${level}: ${message}`) }
}
const away = new Error('connection refused')

test('an outage of 65 s that fails each second: its first error, a line each 30 s, and its end', () => {
  const { clock, outage, said } = outageLog()
  for (let second = 0; second < 65; second += 1) {
    outage.failed(away)
    clock.advance(1_000)
  }
  outage.succeeded()
  expect(said()).toEqual([
    'error: the tick failed: connection refused',
    'error: the tick failed 31 times: connection refused',
    'error: the tick failed 61 times: connection refused',
    'info: the tick works again after 1 min 5 s and 65 failures',
  ])
})

test("a server's plan of a query over many lines is cut to what failed and why", () => {
  const { outage, said } = outageLog()
  const plan = 'Tree: $and\n    a $eq 1\nSort: {}\nProj: {}\n'
  outage.failed(
    new Error(`error processing query: ns=shop.Order ${plan} planner returned error :: caused by :: bad hint`),
  )
  expect(said()).toEqual([
    'error: the tick failed: error processing query: ns=shop.Order Tree: $and ... planner returned error :: caused by :: bad hint',
  ])
})

test('successes and failures in turns for ten minutes: at most six lines a minute, and no failure goes uncounted', () => {
  const { clock, outage, said } = outageLog()
  for (let second = 0; second < 600; second += 1) {
    outage.failed(away)
    expect(outage.lasting).toBe(true)
    outage.succeeded()
    expect(outage.lasting).toBe(false)
    clock.advance(1_000)
  }
  expect(said()).toHaveLength(60)
  expect(said().slice(4, 8)).toEqual([
    'error: the tick failed: connection refused',
    'info: the tick works again after 0 ms and 1 failures',
    'error: the tick failed 58 times: connection refused',
    'info: the tick works again after 0 ms and 58 failures',
  ])
})

test('a second outage soon after the first is told at once', () => {
  const { clock, outage, said } = outageLog()
  outage.failed(away)
  outage.succeeded()
  clock.advance(5_000)
  outage.failed(new Error('not primary'))
  expect(said().at(-1)).toBe('error: the tick failed: not primary')
})

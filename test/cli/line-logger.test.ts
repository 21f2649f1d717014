import { describe, expect, test } from '@jest/globals'
import { ObjectId } from 'mongodb'
import { type LineLoggerOptions, lineLogger } from '../../src/cli/line-logger.js'

function lines() {
  const written: string[] = []
  return { written, destination: { write: (line: string) => void written.push(line) } }
}

const loggerTo = (options: Partial<LineLoggerOptions>) => lineLogger({ format: 'json', level: 'info', ...options })

describe('log lines', () => {
  test('as JSON: level, time, message, fields; errors with their stack, ids as typed', () => {
    const { written, destination } = lines()
    const logger = loggerTo({ destination })
    const id = new ObjectId()
    logger.warn('a step failed', { id, error: new Error('no route', { cause: new Error('down') }) })
    const line = JSON.parse(written[0]!)
    expect(line).toMatchObject({ level: 'warn', msg: 'a step failed', id: id.toHexString() })
    expect(line.error.message).toContain('no route')
    expect(line.error.stack).toContain('down')
    expect(new Date(line.time).getTime()).not.toBeNaN()
  })

  test('an error of 20 MB, or with 20,000 nested causes: cut, and not lost', () => {
    const { written, destination } = lines()
    const logger = loggerTo({ destination })
    logger.error('large', { error: Object.assign(new Error('m'.repeat(20_000_000)), { code: 7 }) })
    let nested = new Error('innermost')
    for (let i = 0; i < 20_000; i += 1) nested = new Error(`cause ${i}`, { cause: nested })
    logger.error('nested', { error: nested })
    const [large, deep] = written.map((line) => JSON.parse(line).error)
    expect(large).toMatchObject({ type: 'Error', code: 7, message: 'm'.repeat(4_000) })
    expect(deep).toMatchObject({ type: 'Error', message: expect.stringMatching(/^cause 19999/) })
    for (const line of written) expect(line.length).toBeLessThan(40_000)
  })

  test('pretty: one line for people', () => {
    const { written, destination } = lines()
    const logger = loggerTo({ format: 'pretty', destination })
    logger.info('starting', { data: '/x' })
    expect(written.join('')).toMatch(/^\d\d:\d\d:\d\d INFO {2}starting {2}data=\/x\n$/)
  })

  test("pretty: an error's causes in the line, its stack below, and only where it is an error", () => {
    const { written, destination } = lines()
    const logger = loggerTo({ format: 'pretty', destination })
    const error = new TypeError('fetch failed', { cause: new Error('connect ECONNREFUSED') })
    logger.warn('waiting', { error })
    logger.error('a step failed', { error })
    expect(written[0]).toMatch(/WARN {2}waiting {2}error=fetch failed: connect ECONNREFUSED\n$/)
    expect(written[1]).toMatch(
      /^.*a step failed {2}error=.*\nTypeError: fetch failed\n {4}at [\s\S]*caused by: Error: connect/,
    )
  })

  test('what JSON has no form for: written all the same', () => {
    const { written, destination } = lines()
    const logger = loggerTo({ destination })
    const circle: Record<string, unknown> = { one: 1 }
    circle['itself'] = circle
    const looped = new Error('a')
    looped.cause = new Error('b', { cause: looped })
    logger.info('a circle', { circle })
    logger.info('a throw', {
      odd: {
        toJSON: () => {
          throw new Error('no')
        },
      },
    })
    logger.info('a bigint', { big: 2n ** 70n })
    logger.info('an error that causes itself', { error: looped })
    const parsed = written.map((line) => JSON.parse(line))
    expect(parsed.map(({ msg }) => msg)).toEqual(['a circle', 'a throw', 'a bigint', 'an error that causes itself'])
    expect(parsed[2]).toMatchObject({ big: '1180591620717411303424' })
    expect(parsed[3].error.message).toBe('a: b')
  })

  test('below the level nothing is written', () => {
    const { written, destination } = lines()
    const logger = loggerTo({ level: 'warn', destination })
    logger.info('x')
    logger.debug('x')
    expect(written).toEqual([])
  })
})

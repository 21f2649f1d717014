import { describe, expect, test } from '@jest/globals'
import { ObjectId } from 'mongodb'
import { pinoLogger } from '../../src/telemetry/index.js'

function lines() {
  const written: string[] = []
  return { written, destination: { write: (line: string) => void written.push(line) } }
}

describe('log lines', () => {
  test('as JSON: level, time, message, fields; errors with their stack, ids as typed', async () => {
    const { written, destination } = lines()
    const logger = await pinoLogger({ destination })
    const id = new ObjectId()
    logger.warn('a step failed', { id, error: new Error('no route', { cause: new Error('down') }) })
    const line = JSON.parse(written[0]!)
    expect(line).toMatchObject({ level: 'warn', msg: 'a step failed', id: id.toHexString() })
    expect(line.error.message).toContain('no route')
    expect(line.error.stack).toContain('down')
    expect(new Date(line.time).getTime()).not.toBeNaN()
  })

  test('an error of 20 MB, or with 20,000 nested causes: cut, and not lost', async () => {
    const { written, destination } = lines()
    const logger = await pinoLogger({ destination })
    logger.error('large', { error: Object.assign(new Error('m'.repeat(20_000_000)), { code: 7 }) })
    let nested = new Error('innermost')
    for (let i = 0; i < 20_000; i += 1) nested = new Error(`cause ${i}`, { cause: nested })
    logger.error('nested', { error: nested })
    const [large, deep] = written.map((line) => JSON.parse(line).error)
    expect(large).toMatchObject({ type: 'Error', code: 7, message: 'm'.repeat(4_000) })
    expect(deep).toMatchObject({ type: 'Error', message: expect.stringMatching(/^cause 19999/) })
    for (const line of written) expect(line.length).toBeLessThan(40_000)
  })

  test('pretty: one line for people', async () => {
    const { written, destination } = lines()
    const logger = await pinoLogger({ format: 'pretty', destination })
    logger.info('starting', { data: '/x' })
    expect(written.join('')).toMatch(/INFO.*starting.*"data":"\/x"/)
  })

  test('below the level nothing is written', async () => {
    const { written, destination } = lines()
    const logger = await pinoLogger({ level: 'warn', destination })
    logger.info('x')
    logger.debug('x')
    expect(written).toEqual([])
  })
})

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

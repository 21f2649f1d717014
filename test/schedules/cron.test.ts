import { describe, expect, jest, test } from '@jest/globals'
import { cronOf } from '../../src/schedules/cron/cron.js'
import { zoneOf } from '../../src/schedules/cron/zone.js'
import { Cron, InvalidCron, UnknownTimeZone } from '../../src/schedules/index.js'

/** The next times after `after`, in UTC. */
function nextOf(expression: string, timezone: string, after: string, count: number): string[] {
  const cron = new Cron(expression, timezone)
  const times: string[] = []
  let at: Date | undefined = new Date(after)
  for (let i = 0; i < count; i += 1) {
    at = cron.next(at)
    if (!at) break
    times.push(at.toISOString().replace('.000Z', 'Z').replace(':00Z', 'Z'))
  }
  return times
}

const JANUARY = '2026-01-01T00:00:00Z' // a Thursday

describe('what a cron expression means', () => {
  test.each([
    ['0 */6 * * *', ['2026-01-01T06:00Z', '2026-01-01T12:00Z', '2026-01-01T18:00Z']],
    ['*/20 * * * * *', ['2026-01-01T00:00:20Z', '2026-01-01T00:00:40Z', '2026-01-01T00:01Z']],
    ['30 5 * * *', ['2026-01-01T05:30Z', '2026-01-02T05:30Z']],
    ['15 10-12 * * *', ['2026-01-01T10:15Z', '2026-01-01T11:15Z', '2026-01-01T12:15Z', '2026-01-02T10:15Z']],
    ['0 8-18/5 * * *', ['2026-01-01T08:00Z', '2026-01-01T13:00Z', '2026-01-01T18:00Z', '2026-01-02T08:00Z']],
    ['5,35 0 * * *', ['2026-01-01T00:05Z', '2026-01-01T00:35Z', '2026-01-02T00:05Z']],
    ['0 0 * * 0', ['2026-01-04T00:00Z', '2026-01-11T00:00Z']],
    ['0 0 * * 7', ['2026-01-04T00:00Z', '2026-01-11T00:00Z']],
    ['0 0 * * sun', ['2026-01-04T00:00Z', '2026-01-11T00:00Z']],
    ['0 0 * * 5-7', ['2026-01-02T00:00Z', '2026-01-03T00:00Z', '2026-01-04T00:00Z', '2026-01-09T00:00Z']],
    ['0 0 * * MON-WED', ['2026-01-05T00:00Z', '2026-01-06T00:00Z', '2026-01-07T00:00Z', '2026-01-12T00:00Z']],
    ['0 0 1 JAN,jul *', ['2026-07-01T00:00Z', '2027-01-01T00:00Z']],
    ['0 0 L * *', ['2026-01-31T00:00Z', '2026-02-28T00:00Z', '2026-03-31T00:00Z']],
    ['0 0 * * FRI#2', ['2026-01-09T00:00Z', '2026-02-13T00:00Z']],
    ['0 0 * * 5#L', ['2026-01-30T00:00Z', '2026-02-27T00:00Z']],
    ['0 0 15W * *', ['2026-01-15T00:00Z', '2026-02-16T00:00Z']],
    ['0 0 LW * *', ['2026-01-30T00:00Z', '2026-02-27T00:00Z', '2026-03-31T00:00Z']],
    ['0 0 1,L * *', ['2026-01-31T00:00Z', '2026-02-01T00:00Z', '2026-02-28T00:00Z']],
    ['0 0 * * 5L', ['2026-01-30T00:00Z', '2026-02-27T00:00Z']],
    ['0 0 * * FRIL', ['2026-01-30T00:00Z', '2026-02-27T00:00Z']],
    ['0 0 * * FRI#1,FRI#3', ['2026-01-02T00:00Z', '2026-01-16T00:00Z', '2026-02-06T00:00Z']],
    ['0 0 13 * +FRI', ['2026-02-13T00:00Z', '2026-03-13T00:00Z', '2026-11-13T00:00Z']],
    ['0 0 ? * MON', ['2026-01-05T00:00Z', '2026-01-12T00:00Z']],
    ['0 0 1 * ?', ['2026-02-01T00:00Z', '2026-03-01T00:00Z']],
    ['0 ? * * *', ['2026-01-01T01:00Z', '2026-01-01T02:00Z']],
    ['0 0 * * SAT-SUN', ['2026-01-03T00:00Z', '2026-01-04T00:00Z', '2026-01-10T00:00Z']],
    ['0 0 29 2 *', ['2028-02-29T00:00Z', '2032-02-29T00:00Z']],
    ['@hourly', ['2026-01-01T01:00Z', '2026-01-01T02:00Z']],
    ['@daily', ['2026-01-02T00:00Z', '2026-01-03T00:00Z']],
    ['@midnight', ['2026-01-02T00:00Z', '2026-01-03T00:00Z']],
    ['@weekly', ['2026-01-04T00:00Z', '2026-01-11T00:00Z']],
    ['@monthly', ['2026-02-01T00:00Z', '2026-03-01T00:00Z']],
    ['@yearly', ['2027-01-01T00:00Z', '2028-01-01T00:00Z']],
    ['@annually', ['2027-01-01T00:00Z', '2028-01-01T00:00Z']],
  ])('%s', (expression, expected) => {
    expect(nextOf(expression, 'UTC', JANUARY, expected.length)).toEqual(expected)
  })

  test('day of month or day of week, where both are restricted', () => {
    const expected = ['2026-01-05T00:00Z', '2026-01-12T00:00Z', '2026-01-13T00:00Z', '2026-01-19T00:00Z']
    expect(nextOf('0 0 13 * MON', 'UTC', JANUARY, 4)).toEqual(expected)
    expect(nextOf('0 0 13 * *', 'UTC', JANUARY, 2)).toEqual(['2026-01-13T00:00Z', '2026-02-13T00:00Z'])
  })

  test('the zone decides', () => {
    expect(nextOf('0 9 * * *', 'Asia/Seoul', JANUARY, 2)).toEqual(['2026-01-02T00:00Z', '2026-01-03T00:00Z'])
    expect(nextOf('0 9 * * *', 'America/New_York', JANUARY, 1)).toEqual(['2026-01-01T14:00Z'])
    expect(nextOf('0 9 * * *', 'Asia/Kathmandu', JANUARY, 1)).toEqual(['2026-01-01T03:15Z'])
    expect(nextOf('0 0 1 * *', 'Pacific/Auckland', JANUARY, 1)).toEqual(['2026-01-31T11:00Z'])
  })
})

describe('when clocks go forward', () => {
  test.each([
    // Berlin: 2026-03-29, 02:00 -> 03:00 at 01:00Z.
    ['30 2 * * *', 'Europe/Berlin', '2026-03-28T12:00Z', ['2026-03-29T01:00Z', '2026-03-30T00:30Z']],
    ['0 2 * * *', 'Europe/Berlin', '2026-03-28T12:00Z', ['2026-03-29T01:00Z', '2026-03-30T00:00Z']],
    ['0 3 * * *', 'Europe/Berlin', '2026-03-28T12:00Z', ['2026-03-29T01:00Z', '2026-03-30T01:00Z']],
    // Several within the gap, and one right after it, are one run.
    ['*/10 2 * * *', 'Europe/Berlin', '2026-03-28T12:00Z', ['2026-03-29T01:00Z', '2026-03-30T00:00Z']],
    ['30 2,3 * * *', 'Europe/Berlin', '2026-03-29T00:00Z', ['2026-03-29T01:00Z', '2026-03-29T01:30Z']],
    ['0 */2 * * *', 'Europe/Berlin', '2026-03-28T23:30Z', ['2026-03-29T01:00Z', '2026-03-29T02:00Z']],
    // New York: 2026-03-08, 02:00 -> 03:00 at 07:00Z.
    ['30 2 * * *', 'America/New_York', '2026-03-08T00:00Z', ['2026-03-08T07:00Z', '2026-03-09T06:30Z']],
    ['15 30 2 * * *', 'America/New_York', '2026-03-08T00:00Z', ['2026-03-08T07:00Z', '2026-03-09T06:30:15Z']],
    // Lord Howe: 2026-10-04, 02:00 -> 02:30 at 15:30Z of the day before.
    ['15 2 * * *', 'Australia/Lord_Howe', '2026-10-03T00:00Z', ['2026-10-03T15:30Z', '2026-10-04T15:15Z']],
    ['30 2 * * *', 'Australia/Lord_Howe', '2026-10-03T00:00Z', ['2026-10-03T15:30Z', '2026-10-04T15:30Z']],
    // Seoul: 1988-05-08, 02:00 -> 03:00 at 17:00Z of the day before; none since 1988.
    ['30 2 * * *', 'Asia/Seoul', '1988-05-07T00:00Z', ['1988-05-07T17:00Z', '1988-05-08T16:30Z']],
    ['30 2 * * *', 'Asia/Seoul', '2026-03-28T00:00Z', ['2026-03-28T17:30Z', '2026-03-29T17:30Z']],
  ])('%s in %s: what would fall into the gap happens once, after it', (expression, zone, after, expected) => {
    expect(nextOf(expression, zone, after, expected.length)).toEqual(expected)
  })

  test('every so long: the rhythm goes on', () => {
    const expected = ['2026-03-29T00:30Z', '2026-03-29T01:00Z', '2026-03-29T01:30Z']
    expect(nextOf('*/30 * * * *', 'Europe/Berlin', '2026-03-29T00:00Z', 3)).toEqual(expected)
    expect(nextOf('@hourly', 'Europe/Berlin', '2026-03-29T00:00Z', 2)).toEqual([
      '2026-03-29T01:00Z',
      '2026-03-29T02:00Z',
    ])
    const howe = ['2026-10-03T15:00Z', '2026-10-03T15:30Z', '2026-10-03T16:00Z']
    expect(nextOf('*/30 * * * *', 'Australia/Lord_Howe', '2026-10-03T14:45Z', 3)).toEqual(howe)
  })
})

describe('when clocks go back', () => {
  test.each([
    // Berlin: 2026-10-25, 03:00 -> 02:00 at 01:00Z.
    ['30 2 * * *', 'Europe/Berlin', '2026-10-24T12:00Z', ['2026-10-25T00:30Z', '2026-10-26T01:30Z']],
    ['0 2 * * *', 'Europe/Berlin', '2026-10-24T12:00Z', ['2026-10-25T00:00Z', '2026-10-26T01:00Z']],
    ['30 2 * * *', 'Europe/Berlin', '2026-10-25T00:45Z', ['2026-10-26T01:30Z']],
    ['30 2 * * *', 'Europe/Berlin', '2026-10-25T01:15Z', ['2026-10-26T01:30Z']],
    [
      '*/30 2 * * *',
      'Europe/Berlin',
      '2026-10-24T12:00Z',
      ['2026-10-25T00:00Z', '2026-10-25T00:30Z', '2026-10-26T01:00Z'],
    ],
    ['0 */2 * * *', 'Europe/Berlin', '2026-10-24T23:00Z', ['2026-10-25T00:00Z', '2026-10-25T03:00Z']],
    // New York: 2026-11-01, 02:00 -> 01:00 at 06:00Z.
    ['30 1 * * *', 'America/New_York', '2026-11-01T00:00Z', ['2026-11-01T05:30Z', '2026-11-02T06:30Z']],
    ['0 2 * * *', 'America/New_York', '2026-11-01T00:00Z', ['2026-11-01T07:00Z', '2026-11-02T07:00Z']],
    // Lord Howe: 2026-04-05, 02:00 -> 01:30 at 15:00Z of the day before.
    ['45 1 * * *', 'Australia/Lord_Howe', '2026-04-04T00:00Z', ['2026-04-04T14:45Z', '2026-04-05T15:15Z']],
    ['15 1 * * *', 'Australia/Lord_Howe', '2026-04-04T00:00Z', ['2026-04-04T14:15Z', '2026-04-05T14:45Z']],
    // Seoul: 1988-10-09, 03:00 -> 02:00 at 17:00Z of the day before.
    ['30 2 * * *', 'Asia/Seoul', '1988-10-08T00:00Z', ['1988-10-08T16:30Z', '1988-10-09T17:30Z']],
  ])('%s in %s: what the wall shows twice happens once', (expression, zone, after, expected) => {
    expect(nextOf(expression, zone, after, expected.length)).toEqual(expected)
  })

  test('every so long: the rhythm goes on through both hours', () => {
    const expected = [
      '2026-10-25T00:00Z',
      '2026-10-25T00:30Z',
      '2026-10-25T01:00Z',
      '2026-10-25T01:30Z',
      '2026-10-25T02:00Z',
    ]
    expect(nextOf('*/30 * * * *', 'Europe/Berlin', '2026-10-24T23:45Z', 5)).toEqual(expected)
    const hourly = ['2026-10-25T00:30Z', '2026-10-25T01:30Z', '2026-10-25T02:30Z']
    expect(nextOf('30 * * * *', 'Europe/Berlin', '2026-10-25T00:00Z', 3)).toEqual(hourly)
    const howe = ['2026-04-04T14:30Z', '2026-04-04T15:00Z', '2026-04-04T15:30Z']
    expect(nextOf('*/30 * * * *', 'Australia/Lord_Howe', '2026-04-04T14:15Z', 3)).toEqual(howe)
  })

  test('within the hour that comes again, the next one is found without going through all that were', () => {
    const every = new Cron('* * 2 * * *', 'Europe/Berlin')
    const looked = jest.spyOn(zoneOf('Europe/Berlin'), 'offsetMs')
    for (const after of ['2026-10-25T01:00:00Z', '2026-10-25T01:00:00.500Z', '2026-10-25T01:59:59.999Z'])
      expect(every.next(new Date(after))).toEqual(new Date('2026-10-26T01:00:00Z'))
    expect(looked.mock.calls.length).toBeLessThan(100)
    looked.mockRestore()
    // The first wall time after the doubled hour.
    const atThree = new Cron('0 0 3 * * *', 'Europe/Berlin')
    for (const after of ['2026-10-25T01:00:00.500Z', '2026-10-25T01:59:59.999Z'])
      expect(atThree.next(new Date(after))).toEqual(new Date('2026-10-25T02:00:00Z'))
  })

  test('a date line that moves: a day that Samoa never had', () => {
    expect(nextOf('0 12 * * *', 'Pacific/Apia', '2011-12-29T12:00Z', 2)).toEqual([
      '2011-12-29T22:00Z',
      '2011-12-30T10:00Z',
    ])
  })
})

describe('what is refused', () => {
  test.each([
    ['61 * * * *', "minute: expected 0-59; '*', a value, a range 'a-b'"],
    ['* 24 * * *', 'hour: expected 0-23;'],
    ['* * 32 * *', 'day of month: expected 1-31'],
    ['* * 0 * *', 'day of month: expected 1-31'],
    ['* * * 13 *', 'month: expected 1-12 or JAN-DEC'],
    ['* * * * 8', 'day of week: expected 0-7 or SUN-SAT'],
    ['60 * * * * *', 'second: expected 0-59'],
    [
      '*/0 * * * *',
      "minute: expected 0-59; '*', a value, a range 'a-b', a step '*/n' or 'a-b/n', or several separated by ','; got '*/0'",
    ],
    ['0 22-6 * * *', "got '22-6' (a range goes up: write one that wraps as two, such as '22-23,0-6')"],
    ['0 0 * * FRI-MON', "got 'FRI-MON' (a range goes up"],
    ['0 0 * NOV-FEB *', "got 'NOV-FEB' (a range goes up"],
    ['0 0 L-3 * *', "got 'L-3' (for days before the last: run on '28-31', and have the task check the day)"],
    ['0 0 1,LW * *', "'LW' (the last weekday)"],
    ['0 0 * * L', "'d#L' (its last)"],
    ['0 0 * * FRI#6', "'d#n' (the nth of the month)"],
    ['5/15 * * * *', "a step '*/n' or 'a-b/n'"],
    ['H * * * *', "got 'H'"],
    ['0 0 * * FRIDAY', "got 'FRIDAY'"],
    ['a b c d e', "got 'a'. hour:"],
    ['* * * *', 'expected 5 fields (minute, hour, day of month, month, day of week) or 6 (with seconds first), got 4'],
    ['* * * * * * *', 'or 6 (with seconds first), got 7'],
    ['', 'got 0'],
    ['@reboot', 'expected one of @yearly'],
    ['@every 5m', "for every few minutes use '*/5 * * * *' or interval"],
    ['0 0 30 2 *', 'there is no such day in any year'],
    [5, 'it is not a string'],
    [5n, 'it is not a string'],
    [undefined, 'it is not a string'],
  ])('%s', (expression, message) => {
    expect(() => new Cron(expression as string)).toThrow(InvalidCron)
    expect(() => new Cron(expression as string)).toThrow(message)
  })

  test('one that is too long, whose text is cut', () => {
    const refused = () => cronOf(`${'0,'.repeat(100_000)}0 * * * *`, 'UTC')
    expect(refused).toThrow('expected at most 1000 characters, got 200009; use ranges instead of single values')
    expect(refused).toThrow(expect.objectContaining({ message: expect.stringMatching(/^.{0,400}$/) }))
  })

  test('a list of one expression, also when that expression is known', () => {
    expect(cronOf('0 0 * * *', 'UTC').expression).toBe('0 0 * * *')
    expect(() => cronOf(['0 0 * * *'] as never, 'UTC')).toThrow('it is not a string')
  })

  test('what was found out about one with no such day is kept', () => {
    const refusals = [1, 2].map(() => {
      try {
        return cronOf('0 0 30 2 *', 'UTC')
      } catch (error) {
        return error
      }
    })
    expect(refusals[0]).toBeInstanceOf(InvalidCron)
    expect(refusals[0]).toBe(refusals[1])
  })

  test('an unknown zone', () => {
    expect(() => new Cron('* * * * *', 5n as never)).toThrow("or 'UTC', got 5")
    expect(() => new Cron('* * * * *', 'Europe/Bärlin')).toThrow(UnknownTimeZone)
    expect(() => new Cron('* * * * *', 'Europe/Bärlin')).toThrow(
      "timezone: expected the name of an IANA time zone such as 'Asia/Seoul', 'Europe/Berlin' or 'UTC', got \"Europe/Bärlin\"",
    )
  })
})

import { describe, expect, test } from '@jest/globals'
import { type Decision, decide } from '../../src/schedules/decide.js'
import type { ScheduleDocument } from '../../src/schedules/documents.js'
import { MOST_DUE } from '../../src/schedules/due.js'

const at = (text: string) => new Date(`2026-11-21T${text}Z`)

/** A schedule as it stands after it was planned for `nextRunAt`. */
function planned(fields: object, nextRunAt: Date | null, more: object = {}): ScheduleDocument {
  const all = { task: 'sync', isActive: true, ...fields }
  const known = decide({ _id: 's', ...all } as ScheduleDocument, at('00:00:00')).set.known
  return { _id: 's', ...all, known, nextRunAt, createdAt: at('00:00:30'), ...more } as ScheduleDocument
}

const due = (decision: Decision) =>
  decision.runs.map((run) => [run.scheduledFor.toISOString().slice(11, 19), run.phase])

describe('what a schedule calls for', () => {
  test('a new one is planned and nothing runs', () => {
    const doc = { _id: 's', task: 'sync', cron: '0 */6 * * *', timezone: 'Asia/Seoul' } as ScheduleDocument
    expect(decide(doc, at('04:00:00'))).toEqual({
      phase: 'Active',
      runs: [],
      wakeAt: at('09:00:00'),
      set: {
        known: { task: 'sync', cron: '0 */6 * * *', timezone: 'Asia/Seoul' },
        nextRunAt: at('09:00:00'),
      },
    })
  })

  test('not due yet: it sleeps on', () => {
    const decision = decide(planned({ cron: '* * * * *' }, at('04:01:00')), at('04:00:59'))
    expect(decision).toEqual({ phase: 'Active', runs: [], wakeAt: at('04:01:00'), set: { nextRunAt: at('04:01:00') } })
  })

  test('due: one run, then the next time', () => {
    const decision = decide(planned({ cron: '* * * * *', args: { n: 1 } }, at('04:01:00')), at('04:01:00'))
    expect(decision).toMatchObject({
      phase: 'Active',
      wakeAt: at('04:02:00'),
      set: { lastRunAt: at('04:01:00'), nextRunAt: at('04:02:00') },
    })
    expect(decision.runs).toEqual([
      {
        _id: 's@2026-11-21T04:01:00.000Z',
        schedule: 's',
        task: 'sync',
        args: { n: 1 },
        phase: 'Queued',
        scheduledFor: at('04:01:00'),
        trigger: 'schedule',
        startBy: at('04:06:00'),
        maxInstances: 1,
        retry: { attempts: 1, backOffMs: 10_000, longestMs: 600_000 },
        timeoutMs: null,
        attempt: 1,
      },
    ])
  })

  test('ten that were missed become one, the latest; the others are told as Skipped', () => {
    const decision = decide(planned({ cron: '* * * * *' }, at('04:01:00')), at('04:10:20'))
    expect(decision.runs).toHaveLength(10)
    expect(due(decision).at(-1)).toEqual(['04:10:00', 'Queued'])
    expect(due(decision)[0]).toEqual(['04:01:00', 'Skipped'])
    expect(decision.runs[0]).toMatchObject({
      outcome: 'Skipped',
      reason: 'coalesced: the run of 2026-11-21T04:10:00.000Z replaces it',
    })
    expect(decision.runs.at(-1)!.coalesced).toEqual({ count: 9, since: at('04:01:00'), isMore: false })
    expect(decision.set.nextRunAt).toEqual(at('04:11:00'))
  })

  test('grace is judged after coalescing: the latest is in time', () => {
    const decision = decide(planned({ cron: '* * * * *', misfireGraceTime: 30 }, at('01:00:00')), at('04:10:20'))
    expect(decision.runs.filter((run) => run.phase === 'Queued').map((run) => run.startBy)).toEqual([at('04:10:30')])
  })

  test('without coalesce each has its run, with a time of its own to start by', () => {
    const decision = decide(
      planned({ cron: '* * * * *', coalesce: false, misfireGraceTime: '2m' }, at('04:01:00')),
      at('04:04:20'),
    )
    expect(due(decision)).toEqual(['04:01:00', '04:02:00', '04:03:00', '04:04:00'].map((time) => [time, 'Queued']))
    expect(decision.runs.map((run) => run.startBy)).toEqual(['03', '04', '05', '06'].map((m) => at(`04:${m}:00`)))
  })

  test('a long outage costs a bounded number of records', () => {
    const doc = planned({ cron: '* * * * * *', coalesce: false }, at('04:00:00'))
    const decision = decide(doc, at('10:00:00'))
    expect(decision.runs).toHaveLength(MOST_DUE)
    expect(decision.runs.at(-1)!.scheduledFor).toEqual(at('10:00:00'))
    expect(decision.runs[0]!.coalesced).toEqual({ count: 0, since: at('04:00:00'), isMore: true })
    const coalesced = decide(planned({ cron: '* * * * * *' }, at('04:00:00')), at('10:00:00'))
    expect(coalesced.runs).toHaveLength(101)
    expect(coalesced.runs.at(-1)!.coalesced).toMatchObject({ since: at('04:00:00'), isMore: true })
    expect(coalesced.set.nextRunAt).toEqual(at('10:00:01'))
  })

  test('misfireGraceTime null: however late', () => {
    const decision = decide(planned({ cron: '0 0 * * *', misfireGraceTime: null }, at('00:00:00')), at('20:00:00'))
    expect(decision.runs).toMatchObject([{ phase: 'Queued', startBy: null }])
  })

  test.each([new Date(8.64e15), new Date('+010000-01-01')])(
    'an interval whose createdAt (%s) is no time to count from counts from now, and a search among its due times ends',
    (createdAt) => {
      const made = decide(planned({ interval: '90s' }, null, { createdAt }), at('01:00:00'))
      expect(made).toMatchObject({ phase: 'Active', runs: [], set: { nextRunAt: at('01:01:30') } })
    },
  )

  test('after the last date that there is nothing is due', () => {
    const last = new Date(8.64e15)
    expect(decide(planned({ interval: '90s' }, last), last)).toMatchObject({ phase: 'Finished' })
  })

  test('an interval counts from when it was made, or from startAt', () => {
    const made = decide(planned({ interval: 90 }, null), at('01:00:00'))
    expect(made.set.nextRunAt).toEqual(at('01:00:30'))
    const started = decide(planned({ interval: '90s', startAt: '2026-11-21T02:00:00Z' }, null), at('01:00:00'))
    expect(started.set.nextRunAt).toEqual(at('02:00:00'))
    const next = decide(planned({ interval: '90s', startAt: at('02:00:00') }, at('02:00:00')), at('02:00:00'))
    expect(next).toMatchObject({ runs: [{ scheduledFor: at('02:00:00') }], set: { nextRunAt: at('02:01:30') } })
  })

  test('startAt and endAt are bounds that count themselves', () => {
    const fields = { cron: '0 * * * *', startAt: at('03:00:00'), endAt: at('04:00:00') }
    expect(decide(planned(fields, null), at('00:30:00')).set.nextRunAt).toEqual(at('03:00:00'))
    expect(decide(planned(fields, at('03:00:00')), at('03:00:01')).set.nextRunAt).toEqual(at('04:00:00'))
    const last = decide(planned(fields, at('04:00:00')), at('04:00:01'))
    expect(last).toMatchObject({
      phase: 'Finished',
      wakeAt: null,
      runs: [{ phase: 'Queued' }],
      set: { nextRunAt: null },
    })
    expect(decide(planned(fields, null), at('05:00:00'))).toMatchObject({ phase: 'Finished', runs: [], wakeAt: null })
  })

  test('a one-off runs once, also when it comes late, and is finished', () => {
    const first = decide({ _id: 's', task: 'sync', at: at('03:00:00') } as ScheduleDocument, at('01:00:00'))
    expect(first).toMatchObject({ phase: 'Active', runs: [], wakeAt: at('03:00:00') })
    const ran = decide(planned({ at: at('03:00:00') }, at('03:00:00')), at('03:00:00'))
    expect(ran).toMatchObject({ phase: 'Finished', runs: [{ scheduledFor: at('03:00:00') }] })
    const late = decide({ _id: 's', task: 'sync', at: at('03:00:00') } as ScheduleDocument, at('03:04:00'))
    expect(late).toMatchObject({ phase: 'Finished', runs: [{ phase: 'Queued', startBy: at('03:05:00') }] })
    const again = decide(planned({ at: at('03:00:00') }, null, { lastRunAt: at('03:00:00') }), at('05:00:00'))
    expect(again).toMatchObject({ phase: 'Finished', runs: [] })
  })

  test('jitter moves the start, not the due time, and all replicas agree on it', () => {
    const doc = planned({ cron: '0 * * * *', jitter: 600, misfireGraceTime: 60 }, at('04:00:00'))
    const early = decide(doc, at('04:00:00'))
    expect(early.runs).toEqual([])
    const startsMs = early.wakeAt!.getTime() - at('04:00:00').getTime()
    expect(startsMs).toBeGreaterThan(0)
    expect(startsMs).toBeLessThanOrEqual(600_000)
    expect(decide(doc, at('04:00:01')).wakeAt).toEqual(early.wakeAt)
    const started = decide(doc, early.wakeAt!)
    expect(started.runs).toMatchObject([
      { scheduledFor: at('04:00:00'), startBy: new Date(early.wakeAt!.getTime() + 60_000) },
    ])
  })

  test('inactive or paused: nothing, whatever was due; back again it is planned from then on', () => {
    const inactive = planned({ cron: '* * * * *', isActive: false }, at('04:01:00'))
    expect(decide(inactive, at('04:02:00'))).toMatchObject({ phase: 'Paused', runs: [], wakeAt: null })
    const pause = { at: at('03:00:00'), until: at('05:00:00') }
    const paused = planned({ cron: '* * * * *' }, null, { paused: pause })
    expect(decide(paused, at('04:02:00'))).toMatchObject({ phase: 'Paused', runs: [], wakeAt: at('05:00:00') })
    const over = decide(paused, at('05:00:00'))
    expect(over).toMatchObject({ phase: 'Active', runs: [], set: { paused: null, nextRunAt: at('05:01:00') } })
  })

  test.each([
    ['before it was paused', { at: at('04:00:30'), reason: 'it is moving' }, ['04:00:00']],
    [
      'several before',
      { at: at('04:03:30'), reason: 'it is moving' },
      ['04:00:00', '04:01:00', '04:02:00', '04:03:00'],
    ],
    ['after it was paused, so it was not to run', { at: at('03:59:30'), reason: 'it is moving' }, []],
    [
      'before a pause that does not say since when',
      { reason: 'it is moving' },
      ['04:00:00', '04:01:00', '04:02:00', '04:03:00', '04:04:00'],
    ],
  ])('what was due %s is Skipped, and says so', (_when, paused, expected) => {
    const doc = planned({ cron: '* * * * *' }, at('04:00:00'), { paused: paused as never })
    const decision = decide(doc, at('04:04:00'))
    expect(decision).toMatchObject({ phase: 'Paused', runs: [], set: { nextRunAt: null } })
    expect((decision.dropped?.runs ?? []).map(({ scheduledFor }) => scheduledFor)).toEqual(expected.map(at))
    for (const run of decision.dropped?.runs ?? [])
      expect(run).toMatchObject({ phase: 'Skipped', reason: 'the schedule was paused: it is moving' })
    expect(decision.dropped?.why).toBe(expected.length > 0 ? 'paused' : undefined)
  })

  test('several have paused it: what was due before the first of them is Skipped', () => {
    const pauses = ['04:03:30', '04:00:30'].map((time, i) => ({ at: at(time), by: `${i}` }))
    const times = (paused: object) => {
      const doc = planned({ cron: '* * * * *' }, at('04:00:00'), { paused: paused as never, pauses })
      return decide(doc, at('04:04:00')).dropped!.runs.length
    }
    expect(times(pauses[0]!)).toBe(1)
    // Written by hand since, so the others no longer count.
    expect(times({ at: at('04:03:00') })).toBe(4)
  })

  test('fields edited in the database are noticed and planned anew, without a run for the old time', () => {
    const doc = {
      ...planned({ cron: '0 4 * * *', args: { n: 1 } }, at('04:00:00')),
      cron: '30 5 * * *',
      args: { n: 2 },
    }
    const decision = decide(doc, at('04:00:10'))
    expect(decision).toMatchObject({ runs: [], wakeAt: at('05:30:00') })
    expect(decision.set.edits).toEqual([
      {
        at: at('04:00:10'),
        action: 'noticed',
        changes: { args: { from: { n: 1 }, to: { n: 2 } }, cron: { from: '0 4 * * *', to: '30 5 * * *' } },
      },
    ])
    const other = { ...planned({ cron: '0 4 * * *', args: { n: 1 } }, at('04:00:00')), args: { n: 2 } }
    expect(decide(other, at('04:00:10')).runs).toMatchObject([{ args: { n: 2 } }])
  })

  test('what can not run is broken, with every reason, and mended by an edit', () => {
    const broken = decide(
      { _id: 's', cron: '61 * * * *', timezone: 'Mars', maxInstances: 0, interval: -5 } as never,
      at('04:00:00'),
    )
    expect(broken).toMatchObject({ phase: 'Broken', runs: [], wakeAt: null })
    expect(broken.set.broken).toContain('task: expected the name of a registered task, got undefined')
    expect(broken.set.broken).toContain('timezone: expected the name of an IANA time zone')
    expect(broken.set.broken).toContain('maxInstances: expected a whole number from 1 to 100, got 0')
    const mended = decide(
      { ...planned({ cron: '61 * * * *' }, null), broken: 'cron', cron: '1 * * * *' },
      at('04:00:00'),
    )
    expect(mended).toMatchObject({ phase: 'Active', set: { broken: null, nextRunAt: at('04:01:00') } })
  })

  test.each([
    ['is_active', false, 'isActive'],
    ['enabled', false, 'isActive'],
    ['max_instances', 3, 'maxInstances'],
    ['misfire_grace_time', 30, 'misfireGraceTime'],
    ['time_zone', 'Asia/Seoul', 'timezone'],
    ['timezome', 'Asia/Seoul', 'timezone'],
    ['colaesce', false, 'coalesce'],
    ['endat', at('05:00:00'), 'endAt'],
    ['start_date', at('05:00:00'), 'startAt'],
    ['Args', {}, 'args'],
  ])('%s is told, and runs all the same', (name, value, meant) => {
    const doc = { _id: 's', task: 'sync', cron: '* * * * *', [name]: value } as never as ScheduleDocument
    const decision = decide(doc, at('04:00:00'))
    expect(decision).toMatchObject({ phase: 'Active', wakeAt: at('04:01:00') })
    const warnings = [`${name}: not a field of a schedule, so it has no effect; did you mean ${meant}?`]
    expect(decision.set.warnings).toEqual(warnings)
    const told = { ...doc, known: decision.set.known!, warnings }
    expect(decide(told, at('04:00:00')).set).not.toHaveProperty('warnings')
    const mended = { ...told, [name]: undefined, [meant]: value } as never
    expect(decide(mended, at('04:00:00')).set.warnings).toBeNull()
  })

  test('fields of its owner that mean nothing of ours are left alone', () => {
    const own = { owner: 'anna', tasks: 3, team: 'x', chron: 1, date: 1, cat: 1, description: '', tags: [], start: 1 }
    expect(decide({ _id: 's', task: 'sync', cron: '* * * * *', ...own } as never, at('04:00:00')).set).toEqual({
      known: { task: 'sync', cron: '* * * * *' },
      nextRunAt: at('04:01:00'),
    })
    const many = Object.fromEntries(Array.from({ length: 1_000 }, (_, i) => [`is_active_${i}`, false]))
    const decision = decide({ _id: 's', task: 'sync', cron: '* * * * *', ...many } as never, at('04:00:00'))
    expect(decision.set.warnings).toHaveLength(10)
  })

  test.each([
    ['yes', 'paused: expected true or { until, reason }, got "yes"; treated as true'],
    [1, 'paused: expected true or { until, reason }, got 1; treated as true'],
    [{ until: '2026-12-01' }, 'paused.until: expected a date, got "2026-12-01"; paused until somebody resumes it'],
  ])('a pause that is written as %j pauses, and is told', (paused, warning) => {
    const decision = decide(planned({ cron: '* * * * *' }, at('04:01:00'), { paused }), at('04:02:00'))
    expect(decision).toMatchObject({ phase: 'Paused', runs: [], wakeAt: null, set: { warnings: [warning] } })
  })

  test('without what it was planned from it is planned anew, whatever nextRunAt says', () => {
    for (const known of [undefined, null, [1], 'text', 5]) {
      const doc = { ...planned({ cron: '* * * * *' }, at('03:00:00')), known } as never
      const decision = decide(doc, at('04:00:00'))
      expect(decision).toMatchObject({ phase: 'Active', runs: [], wakeAt: at('04:01:00') })
      expect(decision.set).toMatchObject({ known: { task: 'sync', cron: '* * * * *' } })
      expect(decision.set).not.toHaveProperty('edits')
    }
  })

  test('of several that are due with jitter those whose start has come are run, and the next one is what waits', () => {
    const doc = planned({ cron: '* * * * *', jitter: '1m', coalesce: false }, at('04:00:00'))
    for (let minute = 0; minute < 30; minute++) {
      const now = new Date(at('04:00:00').getTime() + minute * 60_000)
      const { runs, set, wakeAt } = decide(doc, now)
      for (const run of runs)
        expect(run.scheduledFor.getTime() + (run.jitterMs ?? 0)).toBeLessThanOrEqual(now.getTime())
      expect(wakeAt!.getTime()).toBeGreaterThan(now.getTime())
      expect(set.nextRunAt!.getTime()).toBe(at('04:00:00').getTime() + runs.length * 60_000)
    }
  })

  test('of more that were missed than are told one by one the latest are told', () => {
    const { runs } = decide(planned({ cron: '* * * * *' }, at('01:00:00')), at('04:00:00'))
    expect(runs).toHaveLength(101)
    expect(runs[0]!.scheduledFor).toEqual(at('02:20:00'))
    expect(runs.at(-1)).toMatchObject({ scheduledFor: at('04:00:00'), phase: 'Queued' })
  })

  test('edits are bounded in number and size', () => {
    let doc = planned({ cron: '0 4 * * *', args: {} }, at('04:00:00'))
    for (let i = 0; i < 120; i++) {
      doc = { ...doc, args: { n: i, text: 'x'.repeat(200_000) } }
      doc = { ...doc, ...decide(doc, at('03:00:00')).set } as ScheduleDocument
    }
    expect(doc.edits).toHaveLength(50)
    expect(doc.edits!.at(-1)!.changes!['args']!.to).toMatch(/^\{"value":\{"n":119,.{980,1100} \(\d+ characters\)$/)
    expect(JSON.stringify(doc.edits).length).toBeLessThan(200_000)
  })

  test.each(['startAt', 'endAt', 'at'])('%s beyond all calendars is broken, not an error', (name) => {
    const timing = name === 'at' ? {} : { cron: '* * * * *' }
    const doc = { _id: 's', task: 'sync', ...timing, [name]: new Date(8.64e15) } as never
    expect(decide(doc, at('04:00:00'))).toMatchObject({
      phase: 'Broken',
      set: { broken: `${name}: expected a date before the year 10000, got +275760-09-13T00:00:00.000Z` },
    })
  })
})

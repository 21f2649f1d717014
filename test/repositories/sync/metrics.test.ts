import { expect, test } from '@jest/globals'
import { Unavailable } from 'phaselock'
import { successAge } from '../../../packages/repositories/src/sync/success-age.js'
import { replicaMetrics } from '../../../src/telemetry/index.js'
import { recordingLogger } from '../../support/thing.js'
import { useRepositories } from './support.js'

const { database, world, created, synced } = useRepositories()

/** The series of repositories, by name and labels. */
async function seriesOf(metrics: ReturnType<typeof replicaMetrics>): Promise<Record<string, number>> {
  const text = await metrics.registry.metrics()
  return Object.fromEntries(
    [...text.matchAll(/^phaselock_repository_(\S+) (\S+)$/gm)].map(([, name, value]) => [name, Number(value)]),
  )
}

test('metrics of a replica show its syncs by outcome, its work, open syncs, and how far each repository is behind its schedule', async () => {
  const one = world()
  const { lifecycles } = one.repos
  const metrics = replicaMetrics({ db: database.db, lifecycles, processMetrics: false })
  expect(await seriesOf(metrics)).toEqual({
    'syncs_total{outcome="completed"}': 0,
    'syncs_total{outcome="failed"}': 0,
    'syncs_total{outcome="cancelled"}': 0,
    files_indexed_total: 0,
    chunks_total: 0,
    'texts_total{vectors="embedded"}': 0,
    'texts_total{vectors="reused"}': 0,
    syncs_open: 0,
  })
  one.origin.commit({ a: 'alpha\n', b: 'beta\n' })
  await created(one, { schedule: { every: '6h' } })
  one.origin.commit({ a: 'alpha\n', c: 'beta\n', d: 'delta\n' })
  await synced(one)
  one.origin.branches.clear()
  await synced(one)
  one.origin.commit({ a: 'new\n' })
  one.origin.before = async (call) => {
    if (call !== 'tree') return
    await one.repos.cancel('r')
    throw new Unavailable('away')
  }
  await synced(one)
  await database.db
    .collection('Repository')
    .updateOne({}, [{ $set: { 'synced.at': { $subtract: ['$$NOW', 3_600_000] } } }])
  const { 'success_age_seconds{repository="r"}': age, ...series } = await seriesOf(metrics)
  expect(age).toBeGreaterThanOrEqual(3_600)
  expect(age).toBeLessThan(3_700)
  expect(series).toEqual({
    'syncs_total{outcome="completed"}': 2,
    'syncs_total{outcome="failed"}': 1,
    'syncs_total{outcome="cancelled"}': 1,
    files_indexed_total: 4,
    chunks_total: 4,
    'texts_total{vectors="embedded"}': 3,
    'texts_total{vectors="reused"}': 1,
    syncs_open: 0,
    'interval_seconds{repository="r"}': 21_600,
  })
})

test('with many repositories, those that are furthest behind their schedules have series; without a schedule in force none has', async () => {
  const one = world()
  const repositories = database.db.collection<{ _id: string }>('Repository')
  const hours = (count: number) => new Date(Date.now() - count * 3_600_000)
  const common = { phase: 'Created', url: 'https://git.example/a', collection: 'code' }
  await repositories.insertMany([
    ...Array.from({ length: 60 }, (_, i) => ({
      ...{ ...common, _id: `r${i}`, schedule: { every: '1h' } },
      synced: { at: hours(i) },
    })),
    { ...common, _id: 'inactive', schedule: { every: '1h' }, isActive: false, createdAt: hours(99) },
    { ...common, _id: 'unscheduled', createdAt: hours(99) },
    { ...common, _id: 'broken', schedule: { every: 'often' }, createdAt: hours(99) },
    { ...common, _id: 'removed', state: 'Deleted', schedule: { every: '1h' }, createdAt: hours(99) },
    { ...common, _id: 'never', schedule: { dailyAt: '03:00' }, createdAt: hours(9_999) },
  ] as never[])
  const metrics = replicaMetrics({ db: database.db, lifecycles: one.repos.lifecycles, processMetrics: false })
  const shown = Object.keys(await seriesOf(metrics)).flatMap((name) => /^success_age.*"(.+)"/.exec(name)?.[1] ?? [])
  expect(shown.sort()).toEqual(['never', ...Array.from({ length: 49 }, (_, i) => `r${i + 11}`)].sort())
})

test('a count that fails is left out of a scrape, with a warning; counters stay', async () => {
  const one = world()
  const logger = recordingLogger()
  const db = Object.create(database.db, {
    collection: {
      value: (name: string) => {
        if (name === 'Repository') throw new Error('no right to read Repository')
        return database.db.collection(name)
      },
    },
  })
  const metrics = replicaMetrics({ db, lifecycles: one.repos.lifecycles, processMetrics: false, logger })
  const series = await seriesOf(metrics)
  expect(series).not.toHaveProperty('syncs_open')
  expect(series).toHaveProperty('chunks_total', 0)
  expect(logger.lines.map(({ message }) => message)).toContainEqual(
    expect.stringMatching(/^metrics: repository_syncs_open.*no right to read Repository/),
  )
})

test('the interval of a cron expression is that which follows the last success: a weekend is none too many', () => {
  const age = (at: string, now: string, schedule: object) =>
    successAge({ _id: 'r', synced: { at: new Date(at) }, schedule } as never, new Date(now))
  const weekdays = { cron: '0 9 * * 1-5' }
  const isBehind = ({ sinceMs, intervalMs }: { sinceMs: number; intervalMs: number }) => sinceMs > 2 * intervalMs
  // Friday, 27 November 2026, to Monday and Tuesday.
  expect(isBehind(age('2026-11-27T09:10Z', '2026-11-30T10:00Z', weekdays)!)).toBe(false)
  expect(isBehind(age('2026-11-27T09:10Z', '2026-12-01T09:01Z', weekdays)!)).toBe(true)
  const daily = { dailyAt: '03:00', timezone: 'Asia/Seoul' }
  expect(isBehind(age('2026-11-26T18:05Z', '2026-11-28T17:59Z', daily)!)).toBe(false)
  expect(isBehind(age('2026-11-26T18:05Z', '2026-11-28T18:01Z', daily)!)).toBe(true)
  expect(age('2026-11-27T00:00Z', '2026-11-27T07:00Z', { every: '6h' })).toEqual({
    sinceMs: 7 * 3_600_000,
    intervalMs: 6 * 3_600_000,
  })
})

import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, jest, test } from '@jest/globals'
import { dumpYaml } from '@kubernetes/client-node'
import { memory, repositories } from 'phaselock-repositories'
import { lifecycleOf } from '../../src/index.js'
import { replicaMetrics, workersMetrics } from '../../src/telemetry/index.js'
import { useDatabase } from '../support/database.js'
import { ask, MONITORING, rulesOf } from './support/prometheus.js'
import { CHART, describeWithGo, ROOT, START_TIMEOUT_MS } from './support/render.js'

jest.setTimeout(START_TIMEOUT_MS)

const FIELD = 'namespace="a",pod="p1",job="phaselock"'
const PHASE = `${FIELD},lifecycle="thing",phase="Creating"`
const RUNS = `${FIELD},lifecycle="schedules",task="work"`
/** Each alert with series (values 15 s apart) on which it is to fire after half an hour, and where it is not. */
const CASES: Record<string, { fires: string[][]; quiet: string[][] }> = {
  PhaselockNoReplica: {
    fires: [[`up{${FIELD}} 0x120`], [`up{${FIELD}} 1x60`], []],
    quiet: [[`up{${FIELD}} 1x120`], [`up{${FIELD}} 0x120`, 'up{namespace="a",pod="p2",job="phaselock"} 1x120']],
  },
  PhaselockDueTooLong: {
    fires: [[`phaselock_oldest_due_seconds{${PHASE}} 0+15x120`]],
    quiet: [[`phaselock_oldest_due_seconds{${PHASE}} 60x120`]],
  },
  PhaselockDocumentsParked: {
    fires: [[`phaselock_documents_parked{${PHASE}} 1x120`]],
    quiet: [[`phaselock_documents_parked{${PHASE}} 0x120`]],
  },
  PhaselockDatabaseAway: {
    fires: [[`phaselock_database_up{${FIELD}} 0x120`]],
    quiet: [[`phaselock_database_up{${FIELD}} 0x120`, 'phaselock_database_up{namespace="a",pod="p2"} 1x120']],
  },
  PhaselockReplicaNotReady: {
    fires: [[`phaselock_replica_ready{${FIELD}} 0x120`]],
    quiet: [[`phaselock_replica_ready{${FIELD}} 1x120`]],
  },
  PhaselockStepsFail: {
    fires: [
      [
        `phaselock_steps_total{${PHASE},outcome="error"} 0+2x120`,
        `phaselock_steps_total{${PHASE},outcome="again"} 0+8x120`,
      ],
    ],
    quiet: [
      [
        `phaselock_steps_total{${PHASE},outcome="error"} 0+1x120`,
        `phaselock_steps_total{${PHASE},outcome="again"} 0+99x120`,
      ],
      [],
    ],
  },
  PhaselockLeasesLost: {
    fires: [[`phaselock_lease_lost_total{${FIELD},lifecycle="thing",how="refused"} 0+1x120`]],
    quiet: [[`phaselock_lease_lost_total{${FIELD},lifecycle="thing",how="refused"} 3x120`]],
  },
  PhaselockHandlersAbandoned: {
    fires: [[`phaselock_handlers_abandoned{${FIELD}} 1x120`]],
    quiet: [[`phaselock_handlers_abandoned{${FIELD}} 0x120`]],
  },
  PhaselockDocumentsSkipped: {
    fires: [[`phaselock_documents_skipped{${FIELD}} 1x120`]],
    quiet: [[`phaselock_documents_skipped{${FIELD}} 0x120`]],
  },
  PhaselockRunsFail: {
    fires: [
      // Once a night, in a series that has been there since the start.
      [`phaselock_schedule_runs_total{${RUNS},outcome="Failed",why="error"} 0x90 1x30`],
      [`phaselock_schedule_runs_total{${RUNS},outcome="Missed",why="late"} 0+1x120`],
    ],
    quiet: [
      [`phaselock_schedule_runs_total{${RUNS},outcome="Failed",why="error"} 3x120`],
      [`phaselock_schedule_runs_total{${RUNS},outcome="Completed",why="done"} 0+1x120`],
    ],
  },
  PhaselockSchedulesBroken: {
    fires: [[`phaselock_schedules{${FIELD},lifecycle="schedules",phase="Broken"} 1x120`]],
    quiet: [[`phaselock_schedules{${FIELD},lifecycle="schedules",phase="Paused"} 1x120`]],
  },
  PhaselockLocksLost: {
    fires: [[`phaselock_locks_lost_total{${FIELD},lock=""} 0x100 1x20`]],
    quiet: [[`phaselock_locks_lost_total{${FIELD},lock="nightly"} 1x120`]],
  },
  PhaselockLocksUnavailable: {
    fires: [[`phaselock_lock_acquisitions_total{${FIELD},lock="",result="error"} 0+1x120`]],
    quiet: [[`phaselock_lock_acquisitions_total{${FIELD},lock="",result="held"} 0+1x120`]],
  },
  PhaselockNobodyTakes: {
    fires: [[`phaselock_documents_overdue{${PHASE},why="limit"} 3x120`]],
    quiet: [[`phaselock_documents_overdue{${PHASE},why="paused"} 3x120`]],
  },
  PhaselockPausedForLong: {
    fires: [[`phaselock_paused{${FIELD},lifecycle="thing",what="phase",phase="Creating"} 1x120`]],
    quiet: [[`phaselock_paused{${FIELD},lifecycle="thing",what="document",phase=""} 1x120`]],
  },
  PhaselockCallbacksGivenUp: {
    fires: [[`phaselock_callbacks_total{${FIELD},lifecycle="thing",callback="onMoved",outcome="parked"} 0+1x120`]],
    quiet: [[`phaselock_callbacks_total{${FIELD},lifecycle="thing",callback="onMoved",outcome="failed"} 0+1x120`]],
  },
  PhaselockEventsLost: {
    fires: [[`phaselock_events_lost_total{${FIELD},lifecycle="thing"} 0+1x120`]],
    quiet: [[`phaselock_events_lost_total{${FIELD},lifecycle="thing"} 5x120`]],
  },
  PhaselockOperationsStuck: {
    fires: [
      [`phaselock_operations_open{${FIELD},condition="waiting"} 1x120`],
      [`phaselock_operations_open{${FIELD},condition="parked"} 2x120`],
    ],
    quiet: [[`phaselock_operations_open{${FIELD},condition="running"} 1x120`]],
  },
  PhaselockDutyFails: {
    fires: [
      [`phaselock_duty_failed{${FIELD},duty="census of thing"} 1x120`],
      [`phaselock_duty_age_seconds{${FIELD},duty="census of thing"} 1000+15x120`],
    ],
    quiet: [
      [
        `phaselock_duty_failed{${FIELD},duty="census of thing"} 0x120`,
        `phaselock_duty_age_seconds{${FIELD},duty="census of thing"} 300x120`,
      ],
    ],
  },
  PhaselockRepositoriesBehind: {
    fires: [
      [
        `phaselock_repository_success_age_seconds{${FIELD},repository="shop"} 7000+15x120`,
        `phaselock_repository_interval_seconds{${FIELD},repository="shop"} 3600x120`,
      ],
    ],
    quiet: [
      [
        `phaselock_repository_success_age_seconds{${FIELD},repository="shop"} 3600+15x120`,
        `phaselock_repository_interval_seconds{${FIELD},repository="shop"} 3600x120`,
      ],
    ],
  },
}

interface Panel {
  readonly title: string
  readonly targets?: { readonly expr: string }[]
}
const dashboard = async (): Promise<{ panels: Panel[] }> =>
  JSON.parse(await readFile(join(MONITORING, 'phaselock.json'), 'utf8'))

describe('metrics by name', () => {
  const database = useDatabase()

  test('all that rules and panels ask for is there, with these labels', async () => {
    const thing = lifecycleOf<{ _id: string }>().define({
      name: 'thing',
      collection: 'Thing',
      phases: { Creating: { next: ['Created'] }, Created: { rest: true } },
    })
    const embeddings = { model: 'none', dimensions: 1, embed: async () => ({}) as never }
    const { lifecycles } = repositories({ db: database.db, store: memory(), embeddings })
    const metrics = replicaMetrics({ db: database.db, lifecycles: [thing, ...lifecycles] })
    const notReady: string[] = []
    const zero = { held: 0, queued: 0, running: 0, abandoned: 0, skipped: 0, doorbell: 'off' as const, replicas: {} }
    metrics.watch({ status: () => ({ identity: 'a~1', notReady, ...zero }) as never })
    const known = new Map<string, ReadonlySet<string>>()
    for (const { name, labelNames = [], type } of metrics.registry.getMetricsAsArray() as unknown as Known[]) {
      const labels = new Set(['namespace', 'pod', 'job', 'le', ...labelNames])
      const suffixes = String(type) === 'histogram' ? ['_bucket', '_sum', '_count'] : ['']
      for (const suffix of suffixes) known.set(name + suffix, labels)
    }
    const ofWorkers = workersMetrics({
      ...{ db: database.db, lifecycles: [thing], ofWorkers: async () => [] },
      counts: () => ({ wanted: 1, working: 1, restarts: 0 }),
    })
    const typed = (await ofWorkers.metrics()).matchAll(/^# TYPE (\w+)/gm)
    for (const [, name = ''] of typed)
      if (!known.has(name)) known.set(name, new Set(['namespace', 'pod', 'job', 'which']))
    const { groups } = await rulesOf()
    const exprs = [
      ...groups.flatMap(({ rules }) => rules.map(({ expr }) => expr)),
      ...(await dashboard()).panels.flatMap(({ targets = [] }) => targets.map(({ expr }) => expr)),
    ]
    expect(exprs.length).toBeGreaterThan(30)
    // Which replica answers is for a table of them, no line. What prom-client measures of any process may be without one.
    const own = [...known.keys()].filter((name) => name.startsWith('phaselock_'))
    const isAsked = (name: string) =>
      exprs.some((expr) => new RegExp(`\\b${base(name)}(_bucket|_sum|_count)?\\b`).test(expr))
    const unasked = own.filter((name) => !isAsked(name))
    expect(unasked).toEqual(['phaselock_replica_info'])
    for (const expr of exprs) {
      const names = expr.match(/\b(phaselock|process)_\w+/g) ?? []
      for (const name of names) expect([...known.keys()]).toContain(name)
      const [first] = names
      const by = [...expr.matchAll(/\bby \(([^)]*)\)/g)].flatMap(([, list]) => list!.split(/, */))
      const labels = known.get(first ?? '')
      if (labels) for (const label of by) expect([...labels]).toContain(label)
    }
  })
})

/** A histogram's own name. */
const base = (name: string) => name.replace(/_(bucket|sum|count)$/, '')

interface Known {
  readonly name: string
  readonly type: unknown
  readonly labelNames?: readonly string[]
}

describeWithGo("Prometheus' own parser and engine", () => {
  test('take the rules as they stand', async () => {
    const { problems } = await ask({ rules: dumpYaml(await rulesOf()) })
    expect(problems).toEqual([])
  })

  test('fire each alert where it should, and only there', async () => {
    const alerts = (await rulesOf()).groups.flatMap(({ rules }) => rules).filter((rule) => rule.alert !== undefined)
    expect(alerts.map(({ alert }) => alert)).toEqual(Object.keys(CASES))
    for (const { alert, expr } of alerts) {
      const { fires, quiet } = CASES[alert!]!
      for (const [series, expected] of [
        ...fires.map((given) => [given, 1] as const),
        ...quiet.map((given) => [given, 0] as const),
      ]) {
        const { problems, answers } = await ask({
          series: series.join('\n'),
          queries: [{ name: 'alert', expr, at: 1_800 }],
        })
        expect(problems).toEqual([])
        expect({ alert, series, found: answers['alert'] }).toMatchObject({ found: { length: expected } })
      }
    }
  })

  test('the backlog is counted once, however many replicas tell of it', async () => {
    const { groups } = await rulesOf()
    const [backlog] = groups.flatMap(({ rules }) => rules).filter(({ record }) => record !== undefined)
    expect(backlog!.record).toBe('phaselock:documents_due:sum')
    const series = ['p1', 'p2'].flatMap((pod) =>
      ['Creating', 'Deleting'].map(
        (phase) => `phaselock_documents_due{namespace="a",pod="${pod}",lifecycle="thing",phase="${phase}"} 300x120`,
      ),
    )
    const queries = [{ name: 'due', expr: backlog!.expr, at: 1_800 }]
    const { answers } = await ask({ series: series.join('\n'), queries })
    expect(answers['due']).toEqual([{ labels: { namespace: 'a' }, value: 600 }])
  })

  test("take each panel's queries", async () => {
    const { panels } = await dashboard()
    const queries = panels.flatMap(({ title, targets = [] }) =>
      targets.map(({ expr }, i) => ({
        name: `${title} ${i}`,
        expr: expr.replaceAll('$__rate_interval', '5m').replaceAll(/\$\w+/g, '.*'),
        at: 1_800,
      })),
    )
    const { answers } = await ask({ queries })
    for (const [name, answer] of Object.entries(answers)) expect([name, answer]).toEqual([name, []])
  })
})

describe('copies', () => {
  test('the chart has the same rules and dashboard, and the README of operations names each alert', async () => {
    const read = (...path: string[]) => readFile(join(...path), 'utf8')
    expect(await read(CHART, 'files/prometheusrule.yaml')).toBe(await read(MONITORING, 'prometheusrule.yaml'))
    expect(await read(CHART, 'files/dashboard.json')).toBe(await read(MONITORING, 'phaselock.json'))
    const page = await read(ROOT, 'docs/operations.md')
    const named = [...page.matchAll(/^### (Phaselock\w+)$/gm)].map(([, alert]) => alert)
    expect(named).toEqual(Object.keys(CASES))
  })
})

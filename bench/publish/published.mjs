/** What becomes of results.json: the panels of the chart, and the tables of README.md. */
import { judged, TARGETS } from '../targets.mjs'

const NOT_TAKEN = 'not taken'

/** Figures of our own benchmarks that the peers' run leaves to them. */
const OURS = {
  pickupP50Ms: ['latency', 'doorbellP50Ms'],
  pickupP95Ms: ['latency', 'doorbellP95Ms'],
  recoverySeconds: ['recovery', 'recoverySeconds'],
  idleCommandsPerSecond: ['idle', 'idleCommandsPerSecond'],
  rssIdleMb: ['memory', 'rssIdleMb'],
  rssLoadedMb: ['memory', 'rssLoadedMb'],
}

const PANELS = [
  {
    title: 'Six-step lifecycles',
    note: 'recorded steps a second, best settings',
    field: 'stepsPerSecond',
    best: 'most',
  },
  { title: 'No-op jobs', note: 'a second, from a backlog, best settings', field: 'noopJobsPerSecond', best: 'most' },
  { title: 'Pick-up', note: 'ms, median, default settings', field: 'pickupP50Ms', logarithmic: true, unit: 'ms' },
  {
    title: 'Runs again after kill -9',
    note: 'seconds, default settings',
    field: 'recoverySeconds',
    unit: 's',
  },
  { title: 'Idle', note: 'database commands a second, default settings', field: 'idleCommandsPerSecond' },
  {
    title: 'Memory under load',
    note: 'MB resident, the worker’s process',
    field: 'rssLoadedMb',
    unit: 'MB',
    best: 'most',
  },
]

/** @returns what chart.mjs draws; undefined without a run of the peers */
export function chartOf(results) {
  const rows = rowsOf(results)
  if (rows.length === 0) return undefined
  const names = [...new Set(rows.map(({ name }) => name))]
  const { machine } = results.peers
  return {
    title: 'Phaselock and what you might pick instead',
    note: `${machine.cores} cores (${machine.cpu}), Node ${machine.node.slice(1)}, MongoDB: ${machine.engine}; medians of one run, ${results.peers.takenAt.slice(0, 10)}`,
    panels: PANELS.map(({ title, note, field, unit, best, logarithmic }) => ({
      title,
      note: `${note}${oneByOne(rows, field)}`,
      logarithmic,
      bars: names.map((name) => {
        const value = valueOfPeer(rows, name, field, best)
        return {
          name,
          value,
          text: value === null ? whyNone(field, results.peers) : valueText(value, unit),
          ours: name === 'phaselock',
        }
      }),
    })),
  }
}

/** The peers' run says how long it waited for a killed worker's job, when it did. */
function whyNone(field, { recovery = '' }) {
  const [, seconds] = (field === 'recoverySeconds' && /within (\d+) s/.exec(recovery)) || []
  return seconds === undefined ? NOT_TAKEN : `not within ${seconds} s`
}

/** The peers' rows, ours completed by our own benchmarks. */
export function rowsOf({ peers, ...results }) {
  return (peers?.peers ?? []).map((row) => (row.name === 'phaselock' ? completed(row, results) : row))
}

const completed = (row, results) => ({
  ...row,
  ...Object.fromEntries(
    Object.entries(OURS).map(([field, [bench, figure]]) => [field, row[field] ?? results[bench]?.[figure] ?? null]),
  ),
})

/** The best of pg-boss needs handlers that make batches themselves; what it gives one by one belongs beside it, within the panel's width. */
function oneByOne(rows, field) {
  const row = rows.find(({ setting, [field]: value }) => setting === 'bestOneByOne' && typeof value === 'number')
  return row ? `; ${row.name} one by one ${valueText(row[field])}` : ''
}

/** With `best` the setting that reaches most, else the defaults, where a figure was taken of them. */
function valueOfPeer(rows, name, field, best) {
  const own = rows.filter((row) => row.name === name && typeof row[field] === 'number')
  if (own.length === 0) return null
  if (best === 'most') return Math.max(...own.map((row) => row[field]))
  return (own.find(({ setting }) => setting === 'defaults') ?? own[0])[field]
}

function valueText(value, unit) {
  const digits = value < 10 ? 1 : 0
  const number = value.toLocaleString('en-US', { maximumFractionDigits: digits })
  return unit ? `${number} ${unit}` : number
}

const VERDICTS = { aim: 'aim reached', least: 'reached', missed: '**missed**' }
/** Where each figure comes from: the same field may be in several. */
const SOURCES = {
  stepsPerSecond: 'steps',
  bareStepsPerSecond: 'steps',
  floorShare: 'steps',
  documentsPerSecond: 'noop',
  twoReplicas: 'replicas',
  lostShare: 'replicas',
  idleCommandsPerSecond: 'idle',
  idleCommandsPerSecondUnseen: 'idle',
  readyToCreatedP95Ms: 'kubernetes',
  keysPerClaim: 'backlog',
  recoverySeconds: 'recovery',
  handoverSeconds: 'recovery',
  rssIdleMb: 'memory',
  rssLoadedMb: 'memory',
  heapSlopeMbPerMinute: 'memory',
}

/** The targets with what was reached. */
export function targetsTable(results) {
  const rows = Object.entries(TARGETS).map(([field, { about, least, aim, unit = '' }]) => {
    const found = judged(results[SOURCES[field] ?? 'latency'] ?? {}).find(({ figure }) => figure === field)
    const value = found ? numberText(found.value) : '-'
    const verdict = found ? VERDICTS[found.verdict] : 'not taken'
    return [`${about} (\`${field}\`)`, bound(least, unit), bound(aim, unit), value, verdict]
  })
  return markdown(['figure', 'at least', 'aim', 'last full run', ''], rows)
}

const ON_SERVERS = {
  floor: ['floorStepsPerSecond', 'floorDocumentsPerSecond'],
  steps: ['stepsPerSecond', 'bareStepsPerSecond', 'floorStepsPerSecond', 'floorShare', 'floorShareWithData'],
  noop: ['documentsPerSecond', 'floorShareOfDocuments', 'backlogDocumentsPerSecond', 'floorBacklogDocumentsPerSecond'],
  latency: ['doorbellP50Ms', 'doorbellP95Ms', 'doorbellP50MsUnderLoad', 'doorbellP95MsUnderLoad', 'recordP95Ms'],
  replicas: ['twoReplicas', 'fourReplicas', 'lostShare'],
  memory: ['rssIdleMb', 'rssLoadedMb'],
  // Ratios: Phaselock's rate by the other's, with the other's best settings, in one run.
  peers: [
    ...['stepsTimesPgBoss', 'stepsTimesBullmq', 'bareStepsTimesPgBoss', 'bareStepsTimesBullmq'],
    ...['insertToDoneTimesPgBoss', 'insertToDoneTimesBullmq', 'insertToDoneTimesGraphileWorker'],
  ],
}

/** The figures that a server decides, beside each other. @param runs by a name for people: the results on that server */
export function serversTable(runs) {
  const rows = Object.entries(ON_SERVERS).flatMap(([bench, figures]) =>
    figures.map((figure) => [
      `\`${bench}\``,
      `\`${figure}\``,
      ...Object.values(runs).map((results) => {
        const value = results[bench]?.[figure] ?? results[bench]?.ratios?.[figure]
        return typeof value === 'number' ? numberText(value) : '-'
      }),
    ]),
  )
  return markdown(['', 'figure', ...Object.keys(runs)], rows)
}

const QUALITIES = {
  limits: {
    amplePerSecond: 'documents a second, each with a slot of a limit that has enough',
    ampleShare: 'of those without a limit, in the same round',
    fewPerSecond: 'slots granted a second: 8 slots, handlers of 5 ms',
    fewByTwoPerSecond: 'the same by two replicas',
    floorPerSecond: 'the same by hand, with a counter and without documents',
  },
  fairness: {
    aloneMs: '20 documents of a tenant, with nothing before them: ms until they are done',
    inTurnsMs: 'the same behind a backlog of another tenant, in turns',
    byRankMs: 'with a higher rank',
    byAgeMs: 'by age, behind a smaller backlog (`byAgeBehind`)',
    turnsShare: 'documents a second in turns, of those by age',
    ranksShare: 'and by rank',
  },
  operations: {
    wakePerSecond: 'documents that an operation wakes in a second',
    redoPerSecond: 'and redoes, keeping what each was',
    floorPerSecond: 'single updates by hand, as many at once',
  },
  events: {
    fullShare: 'steps a second with all events kept, of those without',
    sampledShare: 'with sampled ones',
    calledShare: 'documents of one step with a callback, of those without',
  },
}

/** What limits, turns, operations and events cost. */
export function qualitiesTable(results) {
  const rows = Object.entries(QUALITIES).flatMap(([bench, figures]) =>
    Object.entries(figures).map(([figure, about]) => {
      const value = results[bench]?.[figure]
      return [`\`${bench}\``, `${about} (\`${figure}\`)`, typeof value === 'number' ? numberText(value) : 'not taken']
    }),
  )
  return markdown(['', 'figure', 'last full run'], rows)
}

/** When and on what: a line for each machine and kind of run. */
export function provenance(results) {
  const runs = Map.groupBy(Object.entries(results), ([, { machine, quick }]) =>
    [
      `${machine.cores} cores (${machine.cpu}), ${machine.memoryGb} GB, Node ${machine.node.slice(1)}`,
      ...(quick ? ['**quick**: not to be relied on'] : []),
    ].join(', '),
  )
  return [...runs]
    .map(([what, found]) => {
      const taken = found.map(([, { takenAt }]) => takenAt).sort()
      const loads = found.map(([, { machine }]) => machine.loadAverage)
      return `- ${found.map(([name]) => `\`${name}\``).join(', ')}: ${what}; ${taken[0]} to ${taken.at(-1)}, load average after each ${Math.min(...loads)} to ${Math.max(...loads)}`
    })
    .join('\n')
}

const bound = (value, unit) => `${numberText(value)}${unit ? ` ${unit}` : ''}`

const PEER_COLUMNS = {
  stepsPerSecond: 'steps/s',
  noopJobsPerSecond: 'no-op jobs/s',
  pickupP50Ms: 'pick-up p50 ms',
  pickupP95Ms: 'p95 ms',
  recoverySeconds: 'again after kill -9, s',
  idleCommandsPerSecond: 'idle commands/s',
  rssIdleMb: 'RSS idle MB',
  rssLoadedMb: 'loaded MB',
}

export function peersTable(results) {
  const rows = rowsOf(results).map((row) => [
    row.name,
    row.setting,
    ...Object.keys(PEER_COLUMNS).map((field) => (typeof row[field] === 'number' ? numberText(row[field]) : '-')),
  ])
  return rows.length === 0 ? '' : markdown(['', 'settings', ...Object.values(PEER_COLUMNS)], rows)
}

const numberText = (value) =>
  value.toLocaleString('en-US', { maximumFractionDigits: Math.abs(value) < 10 ? 3 : Math.abs(value) < 100 ? 1 : 0 })

const markdown = (head, rows) =>
  [head, head.map(() => '---'), ...rows].map((cells) => `| ${cells.join(' | ')} |`).join('\n')

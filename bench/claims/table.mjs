/** The rows of docs/compare/locks-measured.md. */
const TITLES = {
  phaselock: 'Phaselock',
  skipLocked: '`SKIP LOCKED`, batches of 500',
  skipLockedOneByOne: '`SKIP LOCKED`, one by one',
  versionColumn: 'version column, batches of 500',
  versionColumnOneByOne: 'version column, one by one',
  redisLock: 'Redis lock, append-only file',
  redisLockSnapshots: 'Redis lock, snapshots only',
}
const HEAD = [
  '',
  'claims/s',
  'holder killed: next begins after',
  'holder paused: next begins after',
  'late write of the paused one',
  'server killed: work repeated',
  'by two at once',
  'lost',
]

/** @param figures what `npm run bench -- claims` gives, with `takenAt` */
export function claimsTable({ claims, documents, leaseSeconds, quick, machine, takenAt }) {
  const seconds = (value) => (value === null ? 'not while it lasts' : value === undefined ? '' : `${value} s`)
  const rows = claims.map(({ name, claimsPerSecond, recoverySeconds, takenOverSeconds, lateWrite, serverRestart }) => [
    TITLES[name] ?? name,
    claimsPerSecond?.toLocaleString('en-US') ?? '',
    seconds(recoverySeconds),
    seconds(takenOverSeconds),
    lateWrite === undefined ? '' : lateWrite ? '**kept**' : takenOverSeconds === null ? 'its own still' : 'refused',
    ...['repeated', 'overlapping', 'lost'].map((field) => serverRestart?.[field] ?? ''),
  ])
  const table = [HEAD, HEAD.map(() => '---'), ...rows].map((cells) => `| ${cells.join(' | ')} |`).join('\n')
  const size = quick ? 'a quick run' : `${documents.toLocaleString('en-US')} documents`
  const when = takenAt.slice(0, 10)
  const load = `load average at the end ${machine.loadAverage}`
  return `${table}\n\n${size}, leases of ${leaseSeconds} s, ${machine.cores} cores, Node ${machine.node.slice(1)}, ${when}; ${load}.`
}

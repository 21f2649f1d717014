import { type Db, MongoClient } from 'mongodb'
import { LIFECYCLES_COLLECTION, PARKED_AT } from '../../lock/index.js'
import { numbered } from '../../options/index.js'
import { formatMs, systemClock } from '../../time/index.js'
import { type CheckResult, type Finding, finding } from './finding.js'

/**
 * The largest harmless difference. Leases are judged by the clock of the current primary: after an election a difference makes them longer
 * or shorter.
 */
const MOST_DIFFERENCE_MS = 500
const ANSWER_WITHIN_MS = 5_000

/** A reading of a server's clock, compared with this machine's. */
export interface ClockSample {
  readonly host: string
  /** Its time minus ours, in the middle of the round trip. */
  readonly aheadMs: number
  /** The largest possible error of the reading. */
  readonly uncertainMs: number
}

/** Finds a step of the server's clock that replicas hold back for, and clock differences between the members of a replica set. */
export async function checkClocks(db: Db): Promise<CheckResult> {
  const { said, findings } = await checkMembers(db)
  return { check: 'clocks', said, findings: [...(await heldStep(db)), ...findings] }
}

/** Reads the step forward that replicas have announced to each other, for as long as they hold back for it (docs/lock-protocol.md). */
async function heldStep(db: Db): Promise<Finding[]> {
  const [step] = await db
    .collection(LIFECYCLES_COLLECTION)
    .aggregate<{ at: Date; ms: number; leftMs: number }>([
      {
        $match: {
          'clockStep.at': { $gt: new Date(0), $lt: PARKED_AT },
          'clockStep.until': { $gt: new Date(0), $lt: PARKED_AT },
          'clockStep.ms': { $gt: 0 },
          $expr: { $gt: ['$clockStep.until', '$$NOW'] },
        },
      },
      { $sort: { 'clockStep.until': -1 } },
      { $limit: 1 },
      {
        $project: {
          at: '$clockStep.at',
          ms: { $toDouble: '$clockStep.ms' },
          leftMs: { $toDouble: { $subtract: ['$clockStep.until', '$$NOW'] } },
        },
      },
    ])
    .toArray()
  if (!step) return []
  const { at, ms, leftMs } = step
  return [
    finding(
      "the server's clock",
      `it stepped forward by ${formatMs(ms)} at ${at.toISOString()}: deadlines, removals and leases that end by it wait for another ${formatMs(leftMs)}`,
      'if its time is wrong, correct it before then; if it is right, there is nothing to do',
    ),
  ]
}

/** Reads the clock of each member over a separate connection. */
async function checkMembers(db: Db): Promise<Omit<CheckResult, 'check'>> {
  const hello = await db.admin().command({ hello: 1 })
  if (hello['msg'] === 'isdbgrid') {
    return { said: 'not applicable through mongos: run it against each shard', findings: [] }
  }
  const hosts: string[] = [...(hello['hosts'] ?? []), ...(hello['passives'] ?? [])]
  if (!hello['setName'] || hosts.length < 2) return { said: 'not applicable: one server', findings: [] }
  const asked = await Promise.allSettled(hosts.map((host) => sampleOf(db, host)))
  const samples = asked.flatMap((one) => (one.status === 'fulfilled' ? [one.value] : []))
  const unreachable = hosts.flatMap((host, i): Finding[] => {
    const one = asked[i]!
    if (one.status === 'fulfilled') return []
    const advice = 'make sure that it is running and that this machine can connect to it'
    return [finding(host, `its clock can't be read: ${String(one.reason)}`, advice)]
  })
  const [first, last] = extremes(samples)
  return {
    said: `${numbered(samples.length, 'server')} within ${formatMs((last?.aheadMs ?? 0) - (first?.aheadMs ?? 0))}`,
    findings: [...clockFindings(samples), ...unreachable],
  }
}

/** A finding if two clocks certainly differ by more than half a second. */
export function clockFindings(samples: readonly ClockSample[]): Finding[] {
  const [first, last] = extremes(samples)
  if (!first || !last) return []
  const sureMs = last.aheadMs - last.uncertainMs - (first.aheadMs + first.uncertainMs)
  if (sureMs <= MOST_DIFFERENCE_MS) return []
  return [
    finding(
      `${first.host} and ${last.host}`,
      `their clocks differ by at least ${formatMs(sureMs)}: after an election leases end earlier or later by that`,
      'let all servers follow one time source (NTP, chrony)',
    ),
  ]
}

function extremes(samples: readonly ClockSample[]): (ClockSample | undefined)[] {
  const sorted = [...samples].sort((a, b) => a.aheadMs - b.aheadMs)
  return [sorted[0], sorted.at(-1)]
}

async function sampleOf(db: Db, host: string): Promise<ClockSample> {
  const { credentials, tls, tlsCAFile, tlsCertificateKeyFile } = db.client.options
  const client = new MongoClient(`mongodb://${host}/?directConnection=true`, {
    tls,
    ...(tlsCAFile ? { tlsCAFile } : {}),
    ...(tlsCertificateKeyFile ? { tlsCertificateKeyFile } : {}),
    ...(credentials?.username
      ? {
          auth: { username: credentials.username, password: credentials.password },
          authSource: credentials.source,
          authMechanism: credentials.mechanism,
        }
      : {}),
    serverSelectionTimeoutMS: ANSWER_WITHIN_MS,
    connectTimeoutMS: ANSWER_WITHIN_MS,
  })
  try {
    const admin = client.db('admin')
    await admin.command({ ping: 1 })
    const before = systemClock.now().getTime()
    const { localTime } = await admin.command({ hello: 1 })
    const after = systemClock.now().getTime()
    if (!(localTime instanceof Date)) throw new Error('its hello has no localTime')
    return { host, aheadMs: localTime.getTime() - (before + after) / 2, uncertainMs: (after - before) / 2 }
  } finally {
    await client.close()
  }
}

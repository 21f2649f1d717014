import { contestant } from '../contestant.mjs'
import { measured } from '../measure.mjs'
import { alternating } from '../rounds.mjs'
import { drained, streamed } from './backlog.mjs'

/** Documents of a round of a second, for the engine, which is measured as in steps.mjs and noop.mjs. */
const ENGINE_PACE = { noop: 8_000, steps: 2_600, bare: 3_000 }
const STEPS = 6
/**
 * Jobs and steps in a second of each peer and setting, in turn with Phaselock.
 * @param entries `{ name, setting, peer, worker, tally }` of the peers, without Phaselock
 * @param engine gets what was `wrong` with Phaselock's documents, and the `last` figures of its process
 * @returns `{ noop, insertToDone, steps }`: for each contestant (`name setting`, and `phaselock`, `phaselock bare`) its
 *   figures, one a round
 */
export async function throughput(entries, { server, addresses, sizes, engine, progress }) {
  const { seconds, limitSeconds, rounds } = sizes
  const best = entries.filter(({ setting }) => setting !== 'defaults')
  const defaults = entries.filter(({ setting }) => setting === 'defaults')
  const of = (some, make) => Object.fromEntries(some.map((entry) => [keyOf(entry), make(entry)]))
  const backlog =
    (kind) =>
    ({ peer, worker, tally }) =>
      drained(peer, worker, addresses, { kind, seconds, limitSeconds, tally })
  const stream = ({ peer, worker, tally }) => streamed(peer, worker, addresses, { seconds, limitSeconds, tally })

  const replica = await contestant(server.uri)
  const ours = (lifecycle, job) =>
    measured(
      server,
      replica,
      { kind: 'engine', lifecycle, ...job },
      Math.round(ENGINE_PACE[lifecycle] * seconds),
      engine,
    )
  /** The lifecycles are what a quick run is for. */
  const fewer = sizes.quick ? 1 : rounds
  const say = (what) => (line) => progress(`${what}  ${line}`)
  try {
    const oneSetting = best.filter(({ setting }) => setting === 'best')
    const noop = await alternating(
      { ...of(oneSetting, backlog('noop')), phaselock: ours('noop', { name: 'noop', steps: 1 }) },
      fewer,
      say('no-op jobs'),
    )
    const insertToDone = await alternating(
      { ...of(oneSetting, stream), phaselock: ours('noop', { name: 'flow', steps: 1, flows: true }) },
      fewer,
      say('insert to done'),
    )
    const steps = await alternating(
      {
        ...of(best, backlog('steps')),
        phaselock: ours('steps', { name: 'steps', steps: STEPS, withData: true }),
        'phaselock bare': ours('bare', { name: 'bare', steps: STEPS }),
      },
      rounds,
      say('steps'),
    )
    if (sizes.quick) {
      return {
        noop: { ...noop, ...(await onceEach(of(defaults, backlog('noop')), say('no-op jobs'))) },
        insertToDone,
        steps,
      }
    }
    const noopDefaults = await alternating(of(defaults, backlog('noop')), rounds, say('no-op jobs'))
    const stepsDefaults = await alternating(of(defaults, backlog('steps')), rounds, say('steps'))
    return { noop: { ...noop, ...noopDefaults }, insertToDone, steps: { ...steps, ...stepsDefaults } }
  } finally {
    await replica.close()
  }
}

/** Instead of rounds, in a quick run: defaults show how far they are from the best, no ratio is taken of them. */
async function onceEach(contestants, progress) {
  const figures = {}
  for (const [name, measure] of Object.entries(contestants)) {
    figures[name] = [await measure(1)]
    progress(`${name}: ${Math.round(figures[name][0]).toLocaleString('en-US')}/s`)
  }
  return figures
}

export const keyOf = ({ name, setting }) => `${name} ${setting}`

import { ReplicaFailed } from '../processes/replica-process.js'
import type { Fleet } from './fleet.js'
import type { GatewayOwner } from './gateway-owner.js'
import type { Screen } from './screen.js'
import { waitFor } from './wait-for.js'

const EVERY_MS = 500

interface Watched {
  readonly fleet: Fleet
  readonly screen: Screen
  readonly owner: GatewayOwner
}

/** Keeps the bar up to date while work goes on. @throws ReplicaFailed as soon as a replica fails where it must not */
export async function watching({ fleet, screen, owner }: Watched, work: () => Promise<void>): Promise<void> {
  let isOver = false
  const look = async () => {
    screen.progress(await owner.arrived().catch(() => 0), owner.count)
    return isOver || fleet.failure()
  }
  const watched = waitFor(look, { forMs: Number.POSITIVE_INFINITY, everyMs: EVERY_MS }).then((failure) => {
    if (typeof failure === 'string') throw new ReplicaFailed('of the demo', failure)
  })
  const working = work().finally(() => {
    isOver = true
  })
  await Promise.race([working, watched.then(() => working)])
  await watched
}

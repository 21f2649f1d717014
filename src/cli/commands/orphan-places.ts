import type { Cluster, Region } from '../../kubernetes/index.js'
import { Unavailable } from '../../phases/index.js'
import type { Options } from '../context.js'
import type { Workspace } from '../workspace.js'

/** Nobody's steps wait for these requests. */
const REQUEST_TIMEOUT = '30s'

/** Where to look: a region, or the cluster of a kubeconfig where there are no Region documents. */
export type Place = Partial<Pick<Region, 'name' | 'namespace'>>

/**
 * Does something in the cluster of each region that was asked for; without Region documents in the one that the kubeconfig names.
 * @returns the regions that can't be used, or whose cluster doesn't answer, with the reason
 */
export async function withPlaces(
  { connection }: Workspace,
  options: Options,
  act: (cluster: Cluster, place: Place) => Promise<void>,
): Promise<{ region: string | undefined; why: string }[]> {
  const { Cluster: Server, Regions } = await import('../../kubernetes/index.js')
  const file = options['kubeconfig'] as string | undefined
  const home = Server.of({ name: 'home', kubeconfig: file === undefined ? 'default' : { file } })
  const regions = new Regions({ db: connection.db, home })
  const missed: { region: string | undefined; why: string }[] = []
  try {
    const names = (options['region'] as string[] | undefined) ?? (await regions.names())
    for (const name of names.length > 0 ? names : [undefined]) {
      let cluster: Cluster | undefined
      try {
        const place = name === undefined ? undefined : await regions.of(name)
        cluster = (place?.cluster ?? home).patient(REQUEST_TIMEOUT)
        await act(cluster, place ?? {})
      } catch (error) {
        if (!(error instanceof Unavailable)) throw error
        missed.push({ region: name, why: error.message })
      } finally {
        cluster?.close()
      }
    }
  } finally {
    regions.close()
    home.close()
  }
  return missed
}

import { ServerMissing } from '../tools/servers/server-missing.mjs'

/**
 * Servers of one benchmark that stop together. `optional` starts one: where its program isn't installed it is left out and said
 * so; with CI=true that is an error.
 */
export function serverGroup(progress) {
  const started = []
  const add = async (start) => {
    const server = await start()
    started.push(server)
    return server
  }
  const optional = async (start) => {
    try {
      return await add(start)
    } catch (error) {
      if (!(error instanceof ServerMissing) || process.env.CI) throw error
      progress(`left out: ${error.message}`)
      return undefined
    }
  }
  return { add, optional, stop: () => Promise.all(started.map((server) => server.stop())) }
}

/** What a Redis client needs of a server of tools/servers. */
export const redisAddress = ({ host, port, password }) => ({ host, port, password })

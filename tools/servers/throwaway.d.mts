export interface ThrowawayServer {
  readonly port: number
  /** Where its data and `server.log` are. */
  readonly folder: string
  /** The server's process, `undefined` while none runs. */
  readonly pid: number | undefined
  /** `kill -9` of the server and of the processes that it started: nothing is flushed, its data stay. */
  kill9(): Promise<void>
  /** Starts it again on the same data and port; a running one is stopped cleanly first. */
  restart(): Promise<void>
  /** Stops it and removes its data. */
  stop(): Promise<void>
}

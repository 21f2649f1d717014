import type { IncomingMessage } from 'node:http'
import type { KubernetesObject } from '../api/objects.js'

/** One line of a watch. In a bookmark only the resourceVersion counts; in an error the object is a Status. */
export interface WatchEvent {
  readonly type: 'ADDED' | 'MODIFIED' | 'DELETED' | 'BOOKMARK' | 'ERROR'
  readonly object: KubernetesObject
}

/** Nothing arrived for longer than a server with bookmarks is ever silent: the connection is dead, or a proxy holds back the stream. */
export class SilentStream extends Error {
  override readonly name = 'SilentStream'
  constructor(readonly afterMs: number) {
    super(`nothing was heard for ${afterMs} ms`)
  }
}

/** More than any object can have (etcd allows 1.5 MB, and an event is one object). */
const LONGEST_LINE = 16 * 1024 * 1024
/** The operating system probes a peer that is silent for this long; without an answer the connection soon ends. */
const PROBE_AFTER_MS = 10_000

/**
 * The events of a watch, in batches as they arrive, until the server ends it. The stream is destroyed when the caller stops
 * reading.
 * @throws SilentStream; any error of the connection; SyntaxError for a line that isn't JSON
 */
export async function* eventsOf(stream: IncomingMessage, silenceMs: number): AsyncGenerator<readonly WatchEvent[]> {
  stream.setEncoding('utf8')
  stream.socket.setKeepAlive(true, PROBE_AFTER_MS)
  const silent = () => stream.destroy(new SilentStream(silenceMs))
  let timer = setTimeout(silent, silenceMs).unref()
  let rest = ''
  try {
    for await (const chunk of stream) {
      clearTimeout(timer)
      timer = setTimeout(silent, silenceMs).unref()
      const lines = (rest + (chunk as string)).split('\n')
      rest = lines.pop()!
      if (rest.length > LONGEST_LINE) throw new SyntaxError(`a line of more than ${LONGEST_LINE} characters`)
      const events = lines.filter((line) => line !== '').map((line) => JSON.parse(line) as WatchEvent)
      if (events.length > 0) yield events
    }
  } finally {
    clearTimeout(timer)
    stream.destroy()
  }
}

import { connect, createServer, type Server } from 'node:net'
import { afterEach, beforeEach } from '@jest/globals'
import { Binary, type Db, MongoClient } from 'mongodb'
import { MessageCutter } from './wire-messages.js'

/*
 * Values that other drivers write, most servers store, and ours can't read: binary of the old subtype 2 whose inner length is wrong, and
 * texts that are no UTF-8. The embedded engine takes neither, so a proxy makes them of stand-ins in what the server answers.
 */

const MARK = 'malformed!'
/** Not of the same length, so that neither is found in the other. */
const TEXT_MARK = 'no-utf8'
const USER_DEFINED = 0x80
const OLD_BINARY = 2

/** Through {@link useMalformed}: binary that can't be read. */
export const malformedBinary = (): Binary => new Binary(Buffer.from(MARK), USER_DEFINED)
/** Through {@link useMalformed}: a text that is no UTF-8. */
export const malformedText = TEXT_MARK

/** Gives each test of the enclosing `describe` the same database with such values in it; to be called after `useDatabase`. */
export function useMalformed(database: { readonly uri: string }): { readonly db: Db; readonly uri: string } {
  let current: { client: MongoClient; server: Server; uri: string } | undefined
  beforeEach(async () => {
    const server = createServer()
    const to = new URL(database.uri)
    server.on('connection', (client) => {
      const upstream = connect(Number(to.port), to.hostname)
      const replies = new MessageCutter()
      client.pipe(upstream).on('data', (chunk: Buffer) => {
        for (const { bytes } of replies.push(chunk)) client.write(malformed(bytes))
      })
      for (const [one, other] of [
        [client, upstream],
        [upstream, client],
      ] as const) {
        one.on('error', () => other.destroy()).on('close', () => other.destroy())
      }
    })
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    const uri = new URL(database.uri)
    uri.port = String((server.address() as { port: number }).port)
    uri.searchParams.set('directConnection', 'true')
    current = { client: await new MongoClient(uri.href).connect(), server, uri: uri.href }
  })
  afterEach(async () => {
    await current?.client.close()
    current?.server.close()
  })
  return {
    get db() {
      return current!.client.db(new URL(current!.uri).pathname.slice(1))
    },
    get uri() {
      return current!.uri
    },
  }
}

function malformed(reply: Buffer): Buffer {
  const bytes = Buffer.from(reply)
  const binary = Buffer.from([USER_DEFINED, ...Buffer.from(MARK)])
  for (let at = bytes.indexOf(binary); at >= 0; at = bytes.indexOf(binary)) bytes[at] = OLD_BINARY
  for (let at = bytes.indexOf(TEXT_MARK); at >= 0; at = bytes.indexOf(TEXT_MARK)) {
    bytes.fill(0xff, at, at + TEXT_MARK.length)
  }
  return bytes
}

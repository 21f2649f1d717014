import { connect, createServer, type Server, type Socket } from 'node:net'
import { afterEach, beforeEach, expect, test } from '@jest/globals'
import { BSON, type Document } from 'mongodb'
import { DatabaseProxy, type Peer } from '../../chaos/faults/database-proxy.ts'

let server: Server
let proxy: DatabaseProxy
const sockets: Socket[] = []

beforeEach(async () => {
  server = createServer((socket) => socket.pipe(socket))
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  proxy = await DatabaseProxy.start((server.address() as { port: number }).port)
})
afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.destroy()
  await proxy.close()
  await new Promise((resolve) => server.close(resolve))
})

/** A connection that has said hello; resolves to what comes back. */
function connection(hello: Document): { readonly answered: Promise<void> } {
  const socket = connect(proxy.port, '127.0.0.1')
  sockets.push(socket)
  const answered = new Promise<void>((resolve) => socket.once('data', () => resolve()))
  socket.write(message(hello))
  return { answered }
}

function message(command: Document): Buffer {
  const body = BSON.serialize(command)
  const header = Buffer.alloc(21)
  header.writeInt32LE(21 + body.length, 0)
  header.writeInt32LE(2013, 12)
  return Buffer.concat([header, body])
}

test('cuts off those whom it is told to: a member by its own port, any other by its address', async () => {
  const seen = new Set<Peer>()
  proxy.setEach((peer) => {
    seen.add(peer)
    return { kind: peer === ':27019' ? 'blackhole' : 'pass' }
  })
  const cutOff = connection({ hello: 1, hostInfo: 'some-host:27019', $db: 'admin' })
  await connection({ hello: 1, hostInfo: 'some-host:27020', $db: 'admin' }).answered
  await connection({ hello: 1, client: { application: { name: 'x' } }, $db: 'admin' }).answered
  expect(await Promise.race([cutOff.answered.then(() => 'answered'), 'nothing'])).toBe('nothing')
  expect(seen).toEqual(new Set([':27019', ':27020', '127.0.0.1']))
  // What was held back arrives.
  proxy.set({ kind: 'pass' })
  await cutOff.answered
})

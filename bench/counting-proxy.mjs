import { connect, createServer } from 'node:net'

const OP_MSG = 2013
const HEADER_BYTES = 16

/**
 * Stands between one replica and the server and counts its commands by name: those of all its clients, whatever they are
 * and wherever the product makes them. Not for TLS or compressed connections.
 * @returns `uri`: the server through it; `counts`: a map, name -> commands so far
 */
export async function countingProxy(uri) {
  const { hostname, port } = new URL(uri)
  const counts = new Map()
  const sockets = new Set()
  const proxy = createServer((client) => {
    const server = connect(Number(port), hostname)
    for (const socket of [client, server]) {
      socket.setNoDelay(true)
      sockets.add(socket)
      socket.on('error', () => undefined) // 'close' follows
      socket.on('close', () => {
        sockets.delete(socket)
        client.destroy()
        server.destroy()
      })
    }
    const count = commandCounter(counts)
    client.on('data', count)
    client.pipe(server)
    server.pipe(client)
  })
  await new Promise((resolve) => proxy.listen(0, '127.0.0.1', resolve))
  const through = new URL(uri)
  through.hostname = '127.0.0.1'
  through.port = String(proxy.address().port)
  return {
    uri: through.href,
    counts,
    close() {
      for (const socket of sockets) socket.destroy()
      proxy.close()
    },
  }
}

/** Cuts a client's stream into messages; a message that asks for no reply, or of the old kind, counts as its name too. */
export function commandCounter(counts) {
  let rest = Buffer.alloc(0)
  return (chunk) => {
    rest = rest.length === 0 ? chunk : Buffer.concat([rest, chunk])
    while (rest.length >= HEADER_BYTES && rest.length >= rest.readInt32LE(0)) {
      const message = rest.subarray(0, rest.readInt32LE(0))
      const name = nameOf(message)
      counts.set(name, (counts.get(name) ?? 0) + 1)
      rest = rest.subarray(message.length)
    }
  }
}

/** The first key of the body of an OP_MSG is the command's name. Handshakes of old are the only other kind: a hello. */
function nameOf(message) {
  const isCommand = message.readInt32LE(12) === OP_MSG && message[20] === 0
  return isCommand ? message.toString('latin1', 26, message.indexOf(0, 26)) : 'hello'
}

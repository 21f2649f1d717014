import type { Socket } from 'node:net'

/** A reply of the engine: `response` is a BSON document; this file creates the frame around it. */
export interface EngineReply {
  requestId: number
  moreToCome?: boolean
  /** True if the request was an OP_QUERY (the first hello of a driver): the reply is an OP_REPLY. */
  legacy?: boolean
  response: Buffer
}

/** 16 MiB for a document and everything that surrounds it: the most a driver sends. */
const MAX_MESSAGE_BYTES = 48 * 1024 * 1024
const OP_REPLY = 1
export const OP_MSG = 2013

/**
 * Serves one connection of MongoDB's wire protocol: cuts the stream into messages and answers them strictly in order.
 * A message of an impossible length, or an answer that throws, ends the connection. `gone` aborts once the client has hung up.
 */
export function serveConnection(
  socket: Socket,
  roundTrip: (message: Buffer, gone: AbortSignal) => Promise<EngineReply>,
  dropped: (error: unknown) => void,
): void {
  let chunks: Buffer[] = []
  let have = 0
  let replyId = 0
  let queue = Promise.resolve()
  const gone = new AbortController()
  socket.on('close', () => gone.abort())
  const answer = async (message: Buffer) => {
    const reply = await roundTrip(message, gone.signal)
    if (!reply.moreToCome && !socket.destroyed) socket.write(frame(reply, ++replyId))
  }
  socket.on('data', (chunk: Buffer) => {
    chunks.push(chunk)
    have += chunk.length
    while (have >= 4) {
      if (chunks[0]!.length < 4) chunks = [Buffer.concat(chunks)]
      const need = chunks[0]!.readInt32LE(0)
      if (need < 16 || need > MAX_MESSAGE_BYTES) return void socket.destroy()
      if (have < need) return
      const all = chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks)
      const message = all.subarray(0, need)
      chunks = have > need ? [all.subarray(need)] : []
      have -= need
      queue = queue
        .then(() => answer(message))
        .catch((error) => {
          dropped(error)
          socket.destroy()
        })
    }
  })
}

function frame(reply: EngineReply, id: number): Buffer {
  const head = reply.legacy ? 36 : 21
  const out = Buffer.alloc(head + reply.response.length)
  out.writeInt32LE(out.length, 0)
  out.writeInt32LE(id, 4)
  out.writeInt32LE(reply.requestId, 8)
  out.writeInt32LE(reply.legacy ? OP_REPLY : OP_MSG, 12)
  if (reply.legacy) out.writeInt32LE(1, 32) // numberReturned
  reply.response.copy(out, head)
  return out
}

/** Returns the command's name in an OP_MSG whose body section comes first (as drivers send it); '' for anything else. */
export function commandName(message: Buffer): string {
  const isCommand = message.length > 27 && message.readInt32LE(12) === OP_MSG && message[20] === 0
  return isCommand ? message.toString('latin1', 26, message.indexOf(0, 26)) : ''
}

/**
 * Returns the collection that a command names first (`insert: 'Thing'`); '' if its first value isn't a string.
 * Only for messages with a `commandName`.
 */
export function collectionName(message: Buffer): string {
  const at = message.indexOf(0, 26) + 1
  const BSON_STRING = 2
  return message[25] === BSON_STRING ? message.toString('utf8', at + 4, at + 3 + message.readInt32LE(at)) : ''
}

/** Returns the BSON document of the body section. Only for messages with a `commandName`. */
export function commandBody(message: Buffer): Buffer {
  return message.subarray(21, 21 + message.readInt32LE(21))
}

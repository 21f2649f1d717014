import { BSON, type Document, Timestamp } from 'mongodb'
import { OP_MSG_BODY_AT, type WireMessage } from './wire-messages.js'

/*
 * Gives a server another clock from outside: a proxy stamps each command that reads `$$NOW` with the time that it shall be. A
 * server takes that from a router (mongos sends `runtimeConstants`, so that `$$NOW` is one value on all shards), and the embedded
 * engine takes it from anybody.
 *
 * Not reached: `$currentDate`, `explain`, the server's own timers (maxTimeMS, TTL) and oplog times. Nothing in src decides by these.
 */

const READS_NOW = new Set(['find', 'update', 'findAndModify', 'delete', 'aggregate'])
/** How replies begin that tell the server's time: `hello` and `serverStatus`. */
const TELLS_TIME = new Set(['helloOk', 'isWritablePrimary', 'ismaster', 'topologyVersion', 'host'])
const MERGE = Buffer.from('\x03$merge\0', 'latin1')
const LOCAL_TIME = Buffer.from('\tlocalTime\0', 'latin1')

/** A command's bytes with `$$NOW` fixed; of any other message its own. All else of it stays as it was, byte for byte. */
export function stamped(command: WireMessage, now: Date): Buffer {
  if (!READS_NOW.has(command.name)) return command.bytes
  const runtimeConstants = { localNow: now, clusterTime: new Timestamp({ t: Math.floor(now.getTime() / 1_000), i: 1 }) }
  // In an aggregate only a router may say it, and one that writes would then need more of a router: it keeps the server's own time.
  if (command.name === 'aggregate' && command.bytes.includes(MERGE)) return command.bytes
  const fields = command.name === 'aggregate' ? { runtimeConstants, fromRouter: true } : { runtimeConstants }
  return withFields(command.bytes, fields)
}

/** A reply's bytes with the server's own time moved. */
export function restamped(reply: WireMessage, aheadMs: number): Buffer {
  const at = TELLS_TIME.has(reply.name) ? reply.bytes.indexOf(LOCAL_TIME) : -1
  if (at < 0) return reply.bytes
  const bytes = Buffer.from(reply.bytes)
  const valueAt = at + LOCAL_TIME.length
  bytes.writeBigInt64LE(bytes.readBigInt64LE(valueAt) + BigInt(aheadMs), valueAt)
  return bytes
}

/** Adds fields at the end of a command's document, which drivers send as the first section. */
function withFields(message: Buffer, fields: Document): Buffer {
  const added = BSON.serialize(fields).subarray(4, -1)
  const endAt = OP_MSG_BODY_AT + message.readInt32LE(OP_MSG_BODY_AT) - 1
  const bytes = Buffer.concat([message.subarray(0, endAt), added, message.subarray(endAt)])
  bytes.writeInt32LE(bytes.length, 0)
  bytes.writeInt32LE(message.readInt32LE(OP_MSG_BODY_AT) + added.length, OP_MSG_BODY_AT)
  return bytes
}

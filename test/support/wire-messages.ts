import { BSON, type BSONSerializeOptions, type Document } from 'mongodb'

const OP_MSG = 2013
const HEADER_BYTES = 16
const FLAGS_AT = 16
const CHECKSUM_PRESENT = 1
/** Where the document of a message begins whose first section is of kind 0: after the header, the flags and the kind. */
export const OP_MSG_BODY_AT = 21

/** A command as a driver sends it, or anything else that goes over the wire (then `name` is ''). */
export interface WireMessage {
  readonly bytes: Buffer
  readonly requestId: number
  /** Of a reply: the request that it answers. */
  readonly responseTo: number
  /** `update`, `find`, ...; '' for what is no OP_MSG. */
  readonly name: string
  /** The command's document with its sequences (`updates`, `documents`) in place. */
  readonly body: (reading?: BSONSerializeOptions) => Document
}

/** Cuts a stream of bytes into messages; what is no whole message yet waits for more. */
export class MessageCutter {
  private rest: Buffer = Buffer.alloc(0)

  push(chunk: Buffer): WireMessage[] {
    this.rest = this.rest.length === 0 ? chunk : Buffer.concat([this.rest, chunk])
    const messages: WireMessage[] = []
    while (this.rest.length >= HEADER_BYTES && this.rest.length >= this.rest.readInt32LE(0)) {
      const length = this.rest.readInt32LE(0)
      messages.push(parse(this.rest.subarray(0, length)))
      this.rest = this.rest.subarray(length)
    }
    return messages
  }
}

function parse(bytes: Buffer): WireMessage {
  const isCommand = bytes.readInt32LE(12) === OP_MSG && bytes[20] === 0
  const nameEnd = isCommand ? bytes.indexOf(0, 26) : 0
  return {
    bytes,
    requestId: bytes.readInt32LE(4),
    responseTo: bytes.readInt32LE(8),
    name: isCommand ? bytes.toString('latin1', 26, nameEnd) : '',
    body: (reading) => bodyOf(bytes, reading),
  }
}

/** Sections of kind 0 (the body) and 1 (a named list of documents); a checksum at the end is left alone. */
function bodyOf(bytes: Buffer, reading?: BSONSerializeOptions): Document {
  const hasChecksum = (bytes.readInt32LE(FLAGS_AT) & CHECKSUM_PRESENT) === 1
  const end = bytes.length - (hasChecksum ? 4 : 0)
  let body: Document = {}
  let at = 20
  while (at < end) {
    const kind = bytes[at]
    const size = bytes.readInt32LE(at + 1)
    if (kind === 0) {
      body = { ...BSON.deserialize(bytes.subarray(at + 1, at + 1 + size), reading), ...body }
    } else {
      const nameEnd = bytes.indexOf(0, at + 5)
      const documents: Document[] = []
      for (let from = nameEnd + 1; from < at + 1 + size; from += bytes.readInt32LE(from)) {
        documents.push(BSON.deserialize(bytes.subarray(from, from + bytes.readInt32LE(from)), reading))
      }
      body = { ...body, [bytes.toString('utf8', at + 5, nameEnd)]: documents }
    }
    at += 1 + size
  }
  return body
}

/** A server's reply to a request. */
export const replyTo = ({ requestId }: WireMessage, reply: Document): Buffer =>
  encoded(requestId + 1, requestId, 0, reply)

/** How a message's document is read so that it can be written again: each value keeps its type. */
export const EXACTLY: BSONSerializeOptions = { promoteValues: false, bsonRegExp: true }

/** A message's bytes with another document in place of its own. */
export function withBody({ bytes, requestId, responseTo }: WireMessage, body: Document): Buffer {
  return encoded(requestId, responseTo, bytes.readInt32LE(FLAGS_AT) & ~CHECKSUM_PRESENT, body)
}

/** A message whose document, with its sequences in place, is its only section. */
function encoded(requestId: number, responseTo: number, flags: number, body: Document): Buffer {
  const document = BSON.serialize(body)
  const bytes = Buffer.alloc(OP_MSG_BODY_AT + document.length)
  bytes.writeInt32LE(bytes.length, 0)
  bytes.writeInt32LE(requestId, 4)
  bytes.writeInt32LE(responseTo, 8)
  bytes.writeInt32LE(OP_MSG, 12)
  bytes.writeInt32LE(flags, FLAGS_AT)
  bytes.set(document, OP_MSG_BODY_AT)
  return bytes
}

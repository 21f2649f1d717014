import { createRequire } from 'node:module'
import { type Db, type DbOptions, MongoClient, type MongoClientOptions, MongoNetworkError } from 'mongodb'
import { durableOn } from './durable.js'

type Socket = { readonly closed: boolean; once(event: 'close', listener: () => void): unknown }
/** The part of the driver's own connection class that is needed here. */
type Connection = {
  readonly socket: Socket
  readonly error: Error | null
  writeCommand(command: unknown, options: unknown): Promise<void>
}
type ConnectionClass = new (socket: Socket, options: unknown) => Connection

const connectionType = endingConnection()

/**
 * The driver's client, over connections whose commands end when they do. The driver (7.9) waits forever for a destroyed socket to
 * drain if a command is written between the socket's end and its `close` event. Heartbeats and handshakes are such commands too. A
 * client whose heartbeat hangs never finds its server again. A pool of one connection whose command hangs has no connection left,
 * long after the server is back. Autoencrypting clients keep the driver's own connections.
 */
export function protocolClient(uri: string, options: MongoClientOptions): MongoClient {
  return new ProtocolClient(uri, { ...options, ...(connectionType && { connectionType }) })
}

/** Once it is connected, writes through its databases are durable: see durable.ts. */
class ProtocolClient extends MongoClient {
  override db(name?: string, options?: DbOptions): Db {
    return super.db(name, { writeConcern: durableOn(this), ...options })
  }
}

/**
 * A connection class that ends its commands, if the driver allows one. `connectionType` is an option that the driver's types leave
 * out, and the class to derive from is in no public module. Where another driver version lacks either, or the driver was bundled,
 * connections are the driver's own.
 */
function endingConnection(): ConnectionClass | undefined {
  const Base = driversConnection()
  if (!Base) return undefined
  return class EndingConnection extends Base {
    /** Fails the last write, unless that has already settled. A connection has one command at a time. */
    private failWrite: (error: Error) => void = () => undefined

    constructor(socket: Socket, options: unknown) {
      super(socket, options)
      socket.once('close', () => this.failWrite(this.reason()))
    }

    override writeCommand(command: unknown, options: unknown): Promise<void> {
      return new Promise((resolve, reject) => {
        this.failWrite = reject
        if (this.socket.closed) reject(this.reason())
        else super.writeCommand(command, options).then(resolve, reject)
      })
    }

    /** The driver's own error, if it noticed first: that one distinguishes a timeout. */
    private reason(): Error {
      return this.error ?? new MongoNetworkError('the connection closed while a command was written')
    }
  }
}

function driversConnection(): ConnectionClass | undefined {
  try {
    const require = createRequire(import.meta.url)
    const { Connection } = require('mongodb/lib/cmap/connection.js') as { Connection?: ConnectionClass }
    const sameCopy = (require('mongodb') as { MongoClient: unknown }).MongoClient === MongoClient
    if (!sameCopy || typeof Connection?.prototype.writeCommand !== 'function') return undefined
    void new MongoClient('mongodb://127.0.0.1', { connectionType: Connection } as MongoClientOptions) // throws if it is unknown
    return Connection
  } catch {
    return undefined
  }
}

import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import type { Socket } from 'node:net'
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals'
import type { MongoClient } from 'mongodb'
import { answered, DEFAULT_LOCK_TIMEOUT_MS, protocolClient, protocolClientOptions } from '../../src/database/index.js'
import { refuseUnhandledRejections } from '../faults/unhandled.js'
import { eventually, useDatabase } from '../support/database.js'

/** What is sent for a command: its name as a BSON key, and of a handshake also what the client says about itself. */
const isCommand = (name: string) => (bytes: Buffer) => bytes.includes(`\x10${name}\0`)
const isHandshake = (bytes: Buffer) => bytes.includes('helloOk')
const isHeartbeat = (bytes: Buffer) => isCommand('hello')(bytes) && !isHandshake(bytes)

/**
 * The moment that hangs the driver: a socket is destroyed, and its `close` has not been told, when a command is written to it.
 * It is hit here each time, by destroying the socket just before the write; with a real server it takes luck and load.
 */
describe('a connection that ends just before a write', () => {
  const database = useDatabase()
  refuseUnhandledRejections()
  let client: MongoClient
  let dies: (bytes: Buffer) => boolean
  let died = 0

  const watch = (message: unknown) => {
    const { socket } = message as { socket: Socket }
    // `connect()` puts back the `write` that it finds replaced.
    socket.once('connect', () => {
      const write = socket.write
      socket.write = ((...args: Parameters<Socket['write']>) => {
        if (dies(Buffer.from(args[0] as Uint8Array))) {
          died += 1
          socket.destroy()
        }
        return write.apply(socket, args)
      }) as Socket['write']
    })
  }

  const open = (query = '', more: { maxPoolSize?: number } = {}) => {
    const uri = `${database.uri}${database.uri.includes('?') ? '&' : '?'}${query}`
    client = protocolClient(uri, {
      ...protocolClientOptions(DEFAULT_LOCK_TIMEOUT_MS),
      retryReads: false,
      heartbeatFrequencyMS: 500,
      ...more,
    })
    return client.connect()
  }
  const ping = () => answered(client.db('admin').command({ ping: 1 }))

  beforeEach(() => {
    dies = () => false
    died = 0
    subscribe('net.client.socket', watch)
  })
  afterEach(async () => {
    unsubscribe('net.client.socket', watch)
    await client.close()
  })

  test('fails the command, and the only connection of a pool is replaced', async () => {
    await open('', { maxPoolSize: 1 })
    await ping()
    dies = (bytes) => isCommand('ping')(bytes) && died === 0
    await expect(ping()).rejects.toMatchObject({ name: 'MongoNetworkError' })
    await eventually(ping)
    expect(died).toBe(1)
  })

  test('fails the heartbeat, and the next one finds the server', async () => {
    await open('serverMonitoringMode=poll')
    let failed = 0
    let succeeded = 0
    client.on('serverHeartbeatFailed', () => (failed += 1))
    dies = (bytes) => isHeartbeat(bytes) && died === 0
    await eventually(() => expect(failed).toBeGreaterThan(0))
    client.on('serverHeartbeatSucceeded', () => (succeeded += 1))
    await eventually(() => expect(succeeded).toBeGreaterThan(0))
    await eventually(ping)
    expect(died).toBe(1)
  })

  test('fails handshakes, of the monitor and of the pool, until one gets through', async () => {
    await open('', { maxPoolSize: 1 })
    let failed = 0
    client.on('serverHeartbeatFailed', () => (failed += 1))
    await ping()
    dies = (bytes) => isHandshake(bytes) || isCommand('ping')(bytes) || isHeartbeat(bytes)
    await expect(ping()).rejects.toThrow()
    await eventually(() => expect(failed).toBeGreaterThan(2))
    dies = () => false
    await eventually(ping)
  })
})

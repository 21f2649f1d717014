import type { RedisClient } from 'phaselock/locks'

/** Sends one command. */
export type Send = (args: string[]) => Promise<unknown>

/** A second connection of ioredis, which only listens. */
export interface Subscriber {
  subscribe(channel: string): Promise<unknown>
  on(event: string, listener: (...args: never[]) => void): unknown
  disconnect(): void
}

/** The parts of an ioredis client besides `call`; all of them are optional. */
interface Ioredis {
  readonly isCluster?: boolean
  duplicate?(options: object): Subscriber
  pipeline?(commands: string[][]): { exec(): Promise<readonly (readonly [Error | null, unknown])[] | null> }
}

/** The commands of one write to the connection: more of them, or of characters, are several writes. */
const MOST_COMMANDS = 64
const MOST_CHARACTERS = 1_000_000

/**
 * How commands are sent: by ioredis' `call`, or node-redis' `sendCommand`. ioredis writes each command by itself; those of one turn of the event loop
 * are sent in one write here (a third of the time of a command is the write). A cluster takes no such write for several of its servers.
 */
export function senderOf(client: RedisClient): Send {
  if (!('call' in client) || typeof client.call !== 'function') {
    const { sendCommand } = client as Extract<RedisClient, { sendCommand: unknown }>
    return (args) => sendCommand.call(client, args)
  }
  const one: Send = ([command, ...args]) => client.call(command!, ...args)
  const { pipeline, isCluster } = client as Ioredis
  if (typeof pipeline !== 'function' || isCluster) return one
  return together(one, async (commands) => {
    const calls = commands.map((args) => ['call', ...args])
    const answers = await pipeline.call(client, calls).exec()
    if (!answers) throw new Error('expected an answer to each command, got none')
    return answers
  })
}

/** Opens a second connection to listen; undefined: this client can't. */
export function subscriberOf(client: RedisClient): (() => Subscriber) | undefined {
  const { duplicate } = client as Ioredis
  if (!('call' in client) || typeof duplicate !== 'function') return undefined
  // A lazy connection begins with its first command, and this one sends its first when it is connected.
  return () => duplicate.call(client, { autoResubscribe: false, lazyConnect: false })
}

interface Waiting {
  readonly args: string[]
  readonly resolve: (answer: unknown) => void
  readonly reject: (error: unknown) => void
}

function together(
  one: Send,
  several: (commands: string[][]) => Promise<readonly (readonly [Error | null, unknown])[]>,
): Send {
  let waiting: Waiting[] = []
  let characters = 0
  const flush = () => {
    const sent = waiting
    waiting = []
    characters = 0
    if (sent.length === 0) return
    if (sent.length === 1) return void one(sent[0]!.args).then(sent[0]!.resolve, sent[0]!.reject)
    several(sent.map(({ args }) => args)).then(
      (answers) => {
        for (const [i, { resolve, reject }] of sent.entries()) {
          const [error, answer] = answers[i]!
          if (error) reject(error)
          else resolve(answer)
        }
      },
      (error) => {
        for (const { reject } of sent) reject(error)
      },
    )
  }
  return (args) =>
    new Promise((resolve, reject) => {
      // It runs when all that the last answers led to has been sent.
      if (waiting.length === 0) process.nextTick(flush)
      waiting.push({ args, resolve, reject })
      for (const { length } of args) characters += length
      if (waiting.length >= MOST_COMMANDS || characters >= MOST_CHARACTERS) flush()
    })
}

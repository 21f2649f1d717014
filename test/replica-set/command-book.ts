import type { CommandStartedEvent, Document, MongoClient } from 'mongodb'
import type { Change } from '../support/traces/oplog.js'

const TOKEN = /[^\s"'\\]+~[^\s"'\\#~]+#\d+\.\d+/g
const INTERRUPTED = 11602

/** An update of several documents that the server ended before it was over. */
interface Interrupted {
  readonly ids: readonly string[]
  readonly tokens: ReadonlySet<string>
  readonly answeredAt: Date
}

/** Each command that clients sent, as the driver itself tells: its tokens, and the errors of its answers. */
export class CommandBook {
  readonly tokens = new Set<string>()
  readonly errors: Record<string, number> = {}
  sent = 0
  /** Called for each update of several documents when it is sent. */
  onUpdateOf: ((documents: number) => void) | undefined
  private readonly open = new Map<number, Document>()
  private readonly interrupted: Interrupted[] = []

  /** @param client with `monitorCommands` */
  listenTo(client: MongoClient): void {
    client.on('commandStarted', ({ requestId, command }: CommandStartedEvent) => {
      this.sent += 1
      for (const token of tokensIn(command)) this.tokens.add(token)
      if (!command['update']) return
      this.open.set(requestId, command)
      this.onUpdateOf?.(idsIn(command).length)
    })
    client.on('commandSucceeded', ({ requestId, reply }) => {
      const { writeConcernError, writeErrors } = reply as Document
      this.answered(requestId, writeErrors?.[0] ?? writeConcernError, writeErrors !== undefined)
    })
    client.on('commandFailed', ({ requestId, failure }) => this.answered(requestId, failure, true))
  }

  /** How many updates of several documents had written some of them, and not all, when they were interrupted. */
  interruptedMidway(changes: readonly Change[]): number {
    const isMidway = ({ ids, tokens, answeredAt }: Interrupted) => {
      const written = new Set(
        changes
          .filter(({ wall, id }) => wall <= answeredAt && ids.includes(id))
          .filter(
            ({ before, after }) => tokens.has(after?.['lockedBy']) && before?.['lockedBy'] !== after?.['lockedBy'],
          )
          .map(({ id }) => id),
      )
      return written.size > 0 && written.size < ids.length
    }
    return this.interrupted.filter(isMidway).length
  }

  private answered(requestId: number, error: (Document & Partial<Error>) | undefined, isOfWrite: boolean): void {
    const command = this.open.get(requestId)
    this.open.delete(requestId)
    if (!error) return
    const name = String(error['code'] ?? error.name)
    this.errors[name] = 1 + (this.errors[name] ?? 0)
    if (!command || !isOfWrite || error['code'] !== INTERRUPTED) return
    const ids = idsIn(command)
    if (ids.length > 1)
      this.interrupted.push({ ids, tokens: new Set(tokensIn(command['updates'])), answeredAt: new Date() })
  }
}

const idsIn = (command: Document): string[] =>
  (command['updates'] as Document[]).flatMap(({ q }) => q['_id']?.$in ?? []).map(String)

const tokensIn = (part: unknown): string[] => JSON.stringify(part).match(TOKEN) ?? []

/** The commands of a client (made with `monitorCommands`), with how long each took. */
export class CommandLog {
  commands = []
  #underWay = new Map()

  constructor(client) {
    client.on('commandStarted', ({ requestId, commandName: name, command }) => {
      this.#underWay.set(requestId, { name, command, startedMs: performance.now() })
    })
    client.on('commandSucceeded', ({ requestId }) => this.#ended(requestId))
    client.on('commandFailed', ({ requestId }) => this.#ended(requestId))
  }

  /** All that have ended since the last call. */
  take() {
    return this.commands.splice(0)
  }

  #ended(requestId) {
    const command = this.#underWay.get(requestId)
    if (!command) return
    this.#underWay.delete(requestId)
    this.commands.push({ ...command, ms: performance.now() - command.startedMs })
  }
}

/** What belongs to the session and the connection, and not to the question. */
const NOT_THE_QUESTION = ['lsid', '$db', '$readPreference', '$clusterTime', 'txnNumber', 'readConcern', 'maxTimeMS']

/** What the server examines for a find or an aggregate: the same command, explained. */
export async function examined(db, { command }) {
  const question = Object.fromEntries(Object.entries(command).filter(([field]) => !NOT_THE_QUESTION.includes(field)))
  const explained = await db.command({ explain: question, verbosity: 'executionStats' })
  return totals(explained)
}

/** Sums over all plans of an explanation: an aggregate has one for each of its parts. */
function totals(explained) {
  let keys = 0
  let returned = 0
  const visit = (value) => {
    if (!value || typeof value !== 'object') return
    if (typeof value.totalKeysExamined === 'number') {
      keys += value.totalKeysExamined
      returned += value.nReturned
      return
    }
    for (const part of Object.values(value)) visit(part)
  }
  visit(explained)
  return { keys, returned }
}

import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, beforeEach } from '@jest/globals'
import { type CommandFailedEvent, type Db, MongoClient } from 'mongodb'
import { ReplicaSet } from '../../chaos/replica-set/replica-set.ts'
import { withDatabase } from '../support/database.js'

export interface Privilege {
  readonly resource: { readonly db: string; readonly collection: string }
  readonly actions: readonly string[]
}

const PAGE = 'docs/mongodb-role.md'
const UNAUTHORIZED = 13

/** What stands there for the page's database and collection. */
const renamed = (code: string, database: string, collection: string) =>
  code.replaceAll("'shop'", `'${database}'`).replaceAll("'Order'", `'${collection}'`)

/** The roles of docs/mongodb-role.md, in the order in which they stand there; the page's database and collection are the test's. */
export async function documentedRoles(
  database: string,
  collection = 'Thing',
): Promise<{ role: string; privileges: Privilege[] }[]> {
  const roles: { role: string; privileges: Privilege[] }[] = []
  const db = {
    createRole: (role: (typeof roles)[0]) => roles.push(role),
    createUser: () => 0,
    grantRolesToUser: () => 0,
  }
  for (const [, code] of (await readFile(PAGE, 'utf8')).matchAll(/```js\nuse shop\n([\s\S]+?)```/g)) {
    new Function('db', 'passwordPrompt', renamed(code!, database, collection))(db, () => '')
  }
  return roles
}

/** What a section of that page adds to a role. */
export async function documentedIn(section: string, database: string, collection: string): Promise<Privilege[]> {
  const [, after = ''] = (await readFile(PAGE, 'utf8')).split(`\n## ${section}\n`)
  const [here] = after.split('\n## ')
  const added = [...here!.matchAll(/```js\n(\{[\s\S]+?\})\n```/g)].map(([, code]) => code!)
  if (added.length === 0) throw new Error(`expected privileges in the section ${section} of ${PAGE}, found none`)
  return added.flatMap((code) => new Function(`return [${renamed(code, database, collection)}]`)())
}

export const lacking = (privileges: readonly Privilege[], collection: string, action: string) =>
  privileges.map((one) =>
    one.resource.collection === collection ? { ...one, actions: one.actions.filter((other) => other !== action) } : one,
  )

/** A replica set with access control for the tests of the enclosing `describe`, and an empty database for each of them. */
export function useAccess() {
  let set: ReplicaSet
  let dir: string
  let admin: MongoClient
  let name: string
  let count = 0
  const refused: string[] = []
  const closing: (() => Promise<unknown>)[] = []

  beforeAll(async () => {
    dir = await mkdtemp(join(tmpdir(), 'phaselock-access-'))
    const keyFile = join(dir, 'key')
    await writeFile(keyFile, 'aKeyThatTheMembersShare', { mode: 0o600 })
    set = await ReplicaSet.start({ members: 1, args: ['--keyFile', keyFile] })
    // As long as there is no user, somebody on the server's own machine may create the first one.
    const first = await new MongoClient(set.uri).connect()
    await first.db('admin').command({ createUser: 'admin', pwd: 'admin', roles: ['root'] })
    await first.close()
    admin = await new MongoClient(set.uri, { auth: { username: 'admin', password: 'admin' } }).connect()
  })
  afterAll(async () => {
    await admin?.close()
    await set?.close()
    await rm(dir, { recursive: true, force: true, maxRetries: 10 })
  })
  beforeEach(() => {
    count += 1
    name = `access_${count}`
    refused.length = 0
  })
  afterEach(async () => {
    for (const close of closing.splice(0).reverse()) await close()
    await admin.db(name).dropDatabase()
  })

  /** A user with these rights and no others; the name of a second one of the same test differs. */
  async function user(privileges: readonly Privilege[], user = 'replica'): Promise<string> {
    await admin.db(name).command({ createRole: user, privileges, roles: [] })
    await admin.db(name).command({ createUser: user, pwd: 'secret', roles: [user] })
    return withDatabase(set.uri, name).replace('//', `//${user}:secret@`)
  }

  /** A connection whose commands that were refused for want of a right are noted. */
  async function connected(uri: string): Promise<Db> {
    const client = new MongoClient(uri, { monitorCommands: true, authSource: name })
    client.on('commandFailed', ({ commandName, failure }: CommandFailedEvent) => {
      if ((failure as { code?: unknown }).code === UNAUTHORIZED) refused.push(`${commandName}: ${failure.message}`)
    })
    await client.connect()
    closing.push(() => client.close())
    return client.db(name)
  }

  return {
    get admin() {
      return admin
    },
    get name() {
      return name
    },
    refused,
    closing,
    user,
    connected,
  }
}

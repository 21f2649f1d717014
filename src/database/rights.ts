import type { Db } from 'mongodb'
import { isServerError } from './driver-errors.js'

/** The rights on a collection, in the words of MongoDB's roles: `find`, `createIndex`, ... */
export interface Rights {
  /** The collection's name, without its database. */
  readonly collection: string
  /** MongoDB's privilege actions, such as `find` and `update`. */
  readonly actions: readonly string[]
}

/** The user lacks rights without which a replica would fail again and again. */
export class MissingRights extends Error {
  override readonly name = 'MissingRights'
  constructor(
    /** The logged-in user. */
    readonly user: {
      /** The user's name. */
      readonly user: string
      /** The database that the user was created in: its `authSource`. */
      readonly db: string
    },
    /** The database in which the rights are missing. */
    readonly database: string,
    /** The rights that the user lacks, by collection; the message has the commands that grant them. */
    readonly missing: readonly Rights[],
  ) {
    const privileges = missing.map(({ collection, actions }) => ({ resource: { db: database, collection }, actions }))
    const role = JSON.stringify({ role: 'phaselock-more', privileges, roles: [] })
    const grant = `db.getSiblingDB('${user.db}').grantRolesToUser('${user.user}', [{ role: 'phaselock-more', db: '${database}' }])`
    super(
      `expected the user '${user.user}' to have a replica's rights in the database '${database}' (docs/mongodb-role.md), but these are missing:\n` +
        `${missing.map(({ collection, actions }) => `  - ${actions.join(', ')} on ${collection}`).join('\n')}\n` +
        `add them to its role or run in mongosh, as a user who may:\n  use ${database}\n  db.createRole(${role})\n  ${grant}`,
    )
  }
}

interface Privilege {
  readonly resource: { readonly db?: string; readonly collection?: string; readonly anyResource?: boolean }
  readonly actions: readonly string[]
}

/** @returns for each list the rights missing of it; undefined if there are none, no user is logged in or the server doesn't report them */
export async function missingRights(db: Db, ...lists: (readonly Rights[])[]): Promise<(MissingRights | undefined)[]> {
  const status = await db.command({ connectionStatus: 1, showPrivileges: true }).catch((error: unknown) => {
    if (isServerError(error)) return undefined
    throw error
  })
  const { authenticatedUsers: [user] = [], authenticatedUserPrivileges: privileges = [] } = status?.['authInfo'] ?? {}
  if (!user) return []
  const has = (collection: string, action: string) =>
    (privileges as Privilege[]).some(
      ({ resource, actions }) => actions.includes(action) && isFor(resource, db.databaseName, collection),
    )
  return lists.map((needed) => {
    const missing = needed.flatMap(({ collection, actions }) => {
      const lacking = [...new Set(actions)].filter((action) => !has(collection, action)).sort()
      return lacking.length > 0 ? [{ collection, actions: lacking }] : []
    })
    return missing.length > 0 ? new MissingRights(user, db.databaseName, missing) : undefined
  })
}

/** An empty name means all of them. */
const isFor = ({ db, collection, anyResource }: Privilege['resource'], database: string, name: string): boolean =>
  anyResource === true || ((db === '' || db === database) && (collection === '' || collection === name))

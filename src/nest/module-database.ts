import { type Db, MongoClient } from 'mongodb'
import { connectWith, doorbellClient, LISTENING, renewalClient } from '../database/index.js'
import type { Logger } from '../phases/index.js'
import { InvalidModuleOptions } from './errors.js'
import type { ModuleSettings } from './options.js'
import { orClose } from './or-close.js'
import { endlessWaits, secondClient } from './second-client.js'

/** One database over the connections used by a replica and by its owners. */
export interface ReplicaDatabases {
  /** The app's own client: owners' calls can join its transactions. */
  readonly ownerDb: Db
  /** For claims and outcomes: each wait of its client ends within a third of the lockTimeout, if such a client could be created. */
  readonly db: Db
  /** For renewals: a connection of their own, if one could be created. */
  readonly renewalDb: Db
  /** For listening: a connection of its own; undefined if none could be created or if this process doesn't listen. */
  readonly doorbellDb: Db | undefined
}

/** The databases of an app's lifecycles, on one server. */
export interface ModuleDatabase {
  /** The name of the database of lifecycles that name none. */
  readonly name: string
  /** @throws InvalidModuleOptions for another database if the module was given a `db` that doesn't expose its client */
  of(database?: string): ReplicaDatabases
  /** Closes the connections that were opened here, never those that the app has passed in. */
  close(): Promise<void>
}

/**
 * @param lockTimeoutMs the shortest one of the app's lifecycles: each wait of a client created here ends within a third of it
 * @throws DatabaseUnreachable, InvalidMongoUri, NoDatabase if the database can't be opened here
 */
export async function openModuleDatabase(
  settings: ModuleSettings,
  lockTimeoutMs: number,
  logger: Logger,
): Promise<ModuleDatabase> {
  const given = await givenDb(settings)
  if (given) return withOwnClients(given, settings, lockTimeoutMs, logger)
  const lockTimeout = `${lockTimeoutMs}ms` as const
  const connection = await connectWith({
    uri: settings.uri,
    database: settings.database,
    dataDir: settings.dataDir,
    timeout: settings.connectTimeout,
    lockTimeout,
    log: (message, fields) => logger.info(message, fields),
  })
  return await orClose(connection, async () => {
    const { client } = connection
    const renewals = settings.tick ? await renewalClient(connection, lockTimeout) : client
    const listening = listens(settings) ? await doorbellClient(connection, lockTimeout) : undefined
    const name = connection.db.databaseName
    return {
      name,
      of: (database = name) => ({
        ownerDb: client.db(database),
        db: client.db(database),
        renewalDb: renewals.db(database),
        doorbellDb: listening?.db(database),
      }),
      close: () => connection.close(),
    }
  })
}

async function givenDb({ db, client, database, connection }: ModuleSettings): Promise<Db | undefined> {
  if (!connection) return (db ?? client?.db(database)) as Db | undefined
  if (!connection.db) await connection.asPromise?.()
  if (connection.db) return connection.db as Db
  throw new InvalidModuleOptions([
    'connection: expected an open connection, but it has no db; open it before the app starts',
  ])
}

async function withOwnClients(
  given: Db,
  settings: ModuleSettings,
  lockTimeoutMs: number,
  logger: Logger,
): Promise<ModuleDatabase> {
  const { client } = given as { client?: MongoClient }
  const own = settings.tick ? await ownClients(client, lockTimeoutMs, logger) : undefined
  const listening = listens(settings) ? await secondClient(client, lockTimeoutMs, LISTENING) : undefined
  const onClient = (maker: MongoClient | undefined, database: string): Db => {
    if (maker) return maker.db(database)
    if (database === given.databaseName) return given
    throw new InvalidModuleOptions([
      `forFeature: lifecycles of database '${database}' need the client; give \`client\` and \`database\` instead of \`db\``,
    ])
  }
  return {
    name: given.databaseName,
    of: (database = given.databaseName) => {
      const ownerDb = database === given.databaseName ? given : onClient(client, database)
      const db = own?.work ? own.work.db(database) : ownerDb
      const renewalDb = own?.renewals ? own.renewals.db(database) : db
      return { ownerDb, db, renewalDb, doorbellDb: listening?.db(database) }
    },
    close: async () => void (await Promise.all([own?.work, own?.renewals, listening].map((one) => one?.close()))),
  }
}

const listens = ({ tick, doorbell }: ModuleSettings): boolean => tick && doorbell !== 'off'

/**
 * Creates clients besides the app's own, so that neither its endless waits nor its full pool cost a lease.
 * @returns `work`, for claims and outcomes: undefined if the app's own client is suitable, or no other could be created
 */
async function ownClients(client: unknown, lockTimeoutMs: number, logger: Logger) {
  const renewals = await secondClient(client, lockTimeoutMs, { maxPoolSize: 1 })
  const endless = endlessWaits(client, lockTimeoutMs)
  // Another copy of the driver has other error classes, which the lock protocol would not recognize.
  const reasons = client instanceof MongoClient ? endless : [...endless, 'another copy of the mongodb driver']
  if (!renewals) {
    logger.warn(
      `leases are renewed over the app's own connections, because no second client could be made from the one given. A full pool may then cost leases${endless.length > 0 ? `, and so may its waits (${endless.join(', ')})` : ''}; give \`uri\` instead, or keep maxPoolSize well above what the app uses`,
    )
    return {}
  }
  if (reasons.length === 0) return { renewals }
  const work = await secondClient(client, lockTimeoutMs)
  if (work) {
    logger.debug(`claims and outcomes use a client of Phaselock's own, because the app's has ${reasons.join(', ')}`)
  } else {
    logger.warn(
      `claims and outcomes use the app's own client, which has ${reasons.join(', ')}, because no other could be made from it. A dead server may cost leases; give \`uri\`, or keep each wait at a third of lockTimeout or below`,
    )
  }
  return { work, renewals }
}

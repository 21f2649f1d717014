import { isDeepStrictEqual } from 'node:util'
import type { Collection, Db } from 'mongodb'
import { NotFound } from 'phaselock/operations'
import { isDuplicateKey, protocolCollection } from 'phaselock/tasks'
import { type Keyring, keyOf, openedBy } from './keyring.js'
import { checkProfile, type LoginProfile } from './profile.js'

/** The collection of login profiles. */
export const LOGINS_COLLECTION = 'phaselock.logins'

/** A profile as it is stored. `_id`: `<environment>:<name>`. */
export interface ProfileDocument {
  readonly _id: string
  readonly environment: string
  /** The profile without its secrets. */
  readonly profile: Omit<LoginProfile, 'secrets'>
  /** Its secrets, each sealed with a key of PHASELOCK_STATE_KEYS. */
  readonly secrets: Readonly<Record<string, string>>
  /** 1, and one more with each change of the profile; logins of an earlier version aren't used any more. */
  readonly version: number
  /** The author of the last change, and the reason. */
  readonly by: string
  readonly reason?: string
  readonly at: Date
}

/** The author of a change, and the reason. */
export interface LoginChange {
  readonly by: string
  readonly reason?: string | undefined
}

/** The place of the profiles of one environment. */
export interface ProfilesPlace {
  readonly db: Db
  readonly environment: string
}

const collectionOf = (db: Db): Collection<ProfileDocument> => protocolCollection<ProfileDocument>(db, LOGINS_COLLECTION)
const idOf = (environment: string, name: string): string => `${environment}:${name}`

/** The place that a secret is bound to: it can't be opened as another one. */
export const secretPlace = (environment: string, name: string, secret: string): string =>
  `the secret ${secret} of the login profile ${environment}:${name}`

/**
 * Stores a profile, whatever was there. One that is stored already, with these secrets, stays as it is, so that processes which define it when they
 * start don't end the logins of each other.
 * @returns its version
 * @throws InvalidOptions
 */
export async function storeProfile(
  { db, environment }: ProfilesPlace,
  keyring: Keyring,
  profile: LoginProfile,
  { by, reason }: LoginChange,
): Promise<number> {
  checkProfile(profile)
  const { secrets = {}, ...others } = profile
  const open = withoutUndefined(others)
  const _id = idOf(environment, profile.name)
  const sealed = Object.fromEntries(
    Object.entries(secrets).map(([name, text]) => [
      name,
      keyring.seal(text, secretPlace(environment, profile.name, name)),
    ]),
  )
  const next = {
    environment: { $literal: environment },
    profile: { $literal: open },
    secrets: { $literal: sealed },
    version: { $add: [{ $ifNull: ['$version', 0] }, 1] },
    by: { $literal: by },
    reason: reason === undefined ? '$$REMOVE' : { $literal: reason },
    at: '$$NOW',
  }
  // $set merges objects: what a profile has no longer must go.
  const stages = [{ $unset: ['profile', 'secrets'] }, { $set: next }]
  for (;;) {
    const found = await findProfile({ db, environment }, profile.name)
    if (
      found &&
      isDeepStrictEqual(found.profile, open) &&
      isDeepStrictEqual(openSecrets(keyring, found), { ...secrets })
    )
      return found.version
    // Only over what was read: another process may have defined the same one in the meantime.
    const seen = found ? { version: found.version, at: found.at } : { version: { $exists: false } }
    const options = { upsert: !found, returnDocument: 'after' } as const
    try {
      const stored = await collectionOf(db).findOneAndUpdate({ _id, ...seen }, stages, options)
      if (stored) return stored.version
    } catch (error) {
      if (!isDuplicateKey(error)) throw error
    }
  }
}

/** The secrets by name; undefined for each that no key opens. */
const openSecrets = (keyring: Keyring, { environment, profile, secrets }: ProfileDocument): object =>
  Object.fromEntries(
    Object.entries(secrets).map(([name, sealed]) => [
      name,
      openedBy(keyring, sealed, secretPlace(environment, profile.name, name)),
    ]),
  )

const withoutUndefined = (value: object): object => JSON.parse(JSON.stringify(value)) as object

/** One profile; undefined if there is no such one. */
export const findProfile = async (
  { db, environment }: ProfilesPlace,
  name: string,
): Promise<ProfileDocument | undefined> =>
  (await collectionOf(db).findOne({ _id: idOf(environment, String(name)) })) ?? undefined

/** One profile. @throws NotFound */
export async function storedProfile(place: ProfilesPlace, name: string): Promise<ProfileDocument> {
  const found = await findProfile(place, name)
  if (found) return found
  throw unknownProfile(place, name)
}

export const unknownProfile = ({ environment }: ProfilesPlace, name: string): NotFound =>
  new NotFound(
    `expected the name of a login profile of the environment ${environment}, got ${name}`,
    undefined,
    'list them with: phaselock logins',
  )

/** All profiles of the environment by name. */
export const listProfiles = ({ db, environment }: ProfilesPlace): Promise<ProfileDocument[]> =>
  collectionOf(db).find({ environment }).sort({ _id: 1 }).toArray()

/** Removes a profile. @throws NotFound */
export async function removeProfile(place: ProfilesPlace, name: string): Promise<ProfileDocument> {
  const removed = await collectionOf(place.db).findOneAndDelete({ _id: idOf(place.environment, name) })
  return removed ?? (await storedProfile(place, name))
}

/** The result of a rotation, by profile. */
export interface Rotated {
  /** The number of secrets that were sealed anew. */
  readonly secrets: number
  /** The profiles that they belong to. */
  readonly profiles: readonly string[]
  /** The key that all secrets are sealed with now. */
  readonly key: string
}

/**
 * Seals all secrets of all environments with the newest key. Tokens that an older key sealed end by themselves.
 * @throws KeyUnusable if a key is missing; what was rotated before stays so
 */
export async function rotateSecrets(db: Db, keyring: Keyring): Promise<Rotated> {
  const profiles: string[] = []
  let secrets = 0
  for (const { _id } of await collectionOf(db)
    .find({}, { projection: { _id: 1 } })
    .toArray()) {
    const rotated = await rotateProfile(db, keyring, _id)
    if (rotated > 0) profiles.push(_id)
    secrets += rotated
  }
  return { secrets, profiles, key: keyring.newest }
}

async function rotateProfile(db: Db, keyring: Keyring, _id: string): Promise<number> {
  for (;;) {
    const found = await collectionOf(db).findOne({ _id })
    if (!found) return 0
    const { environment, profile, secrets } = found
    const old = Object.entries(secrets).filter(([, sealed]) => keyOf(sealed) !== keyring.newest)
    if (old.length === 0) return 0
    const anew = old.map(([name, sealed]) => {
      const place = secretPlace(environment, profile.name, name)
      return [name, keyring.seal(keyring.open(sealed, place), place)] as const
    })
    // Only over what was read: a profile that was changed in the meantime has other secrets.
    const next = { ...secrets, ...Object.fromEntries(anew) }
    const { matchedCount } = await collectionOf(db).updateOne({ _id, secrets }, { $set: { secrets: next } })
    if (matchedCount === 1) return old.length
  }
}

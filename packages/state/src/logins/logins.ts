import { type Duration, InvalidOptions, type Logger } from 'phaselock'
import type { WrapHandler } from 'phaselock/tasks'
import { aDuration, aFunction, anEnvironment, aText, checked, environmentIn, having, required } from '../options.js'
import { Guard } from '../store/guard.js'
import { type SharedStore, type SharedValues, StoreUnavailable } from '../store/index.js'
import { warnings } from '../store/warnings.js'
import { KEYS_VARIABLE, Keyring, openedBy } from './keyring.js'
import { logIn } from './log-in.js'
import { Login } from './login.js'
import { type LoginProfile, needsUser } from './profile.js'
import {
  findProfile,
  type LoginChange,
  type ProfileDocument,
  type ProfilesPlace,
  secretPlace,
  storeProfile,
  unknownProfile,
} from './profiles.js'

/** The options of `new Logins(...)`. */
export interface LoginsOptions {
  /** The database of the profiles. */
  readonly db: ProfilesPlace['db']
  /** The store of the tokens, which are sealed. */
  readonly store: SharedStore
  /** Separates environments in one database. Default `PHASELOCK_ENVIRONMENT`, else `default`. */
  readonly environment?: string | undefined
  /** The keys, newest first: `k2=<32 bytes in base64>,k1=...`. Default: the variable PHASELOCK_STATE_KEYS. */
  readonly keys?: string | undefined
  /** The time to wait while another process logs in. Default 5s. */
  readonly lockWait?: Duration | undefined
  /** The time that a login is used after its end, with the last profile that was read, while the store or the locks are away. Default: not at all. */
  readonly staleFor?: Duration | undefined
  /** Default: warnings and errors on standard error. */
  readonly logger?: Logger | undefined
  /** Default: Node's. */
  readonly fetch?: typeof globalThis.fetch | undefined
}

/** The login of one profile and user, by which a step or run reaches an outside system. */
export interface LoginHandle {
  /** The login, from the store or anew. */
  context(): Promise<Login>
  /**
   * Calls with the login; if the call fails with a status of 401, once more with a new login.
   * @example await crm.use(({ authorization }) => client.get('/orders', { headers: { authorization } }))
   */
  use<T>(call: (login: Login) => Promise<T>): Promise<T>
  /** `fetch` with the header Authorization; an answer of 401 is repeated once with a new login, unless its body was a stream. */
  fetch(input: string | URL, init?: RequestInit): Promise<Response>
}

/** The names that a handler has for logins: a profile, or a profile with the user of the document. */
export type NamedLogins = Readonly<
  Record<string, string | { readonly profile: string; readonly user?: (doc: never) => string }>
>

const toOpen = {
  db: required(having<ProfilesPlace['db']>(['collection', 'command'], 'a Db of the mongodb driver')),
  store: required(having<SharedStore>(['of'], 'a SharedStore')),
  environment: anEnvironment,
  keys: aText,
  lockWait: aDuration('1d'),
  staleFor: aDuration(),
  logger: having<Logger>(['info', 'warn'], 'a logger'),
  fetch: aFunction<typeof globalThis.fetch>(),
}

/** The stored token. */
interface Kept {
  readonly sealed: string
}

/**
 * Logins that all replicas share: of any number of processes one logs in, and all use its token until shortly before its end. Profiles are documents;
 * secrets and tokens are sealed with the keys of PHASELOCK_STATE_KEYS.
 *
 * @example
 * ```ts
 * const logins = new Logins({ db, store: new SharedStore({ client: db }) })
 * await logins.define({ name: 'crm', url, body: { password: '{{secret.password}}' }, token: 'token', secrets: { password } }, { by: 'ana' })
 * const answer = await logins.of('crm').fetch('https://crm.example.org/orders')
 * ```
 */
export class Logins {
  private readonly place: ProfilesPlace
  private readonly keyring: Keyring
  private readonly tokens: SharedValues<Kept>
  private readonly options: LoginsOptions
  private readonly guard: Guard
  /** The last profile of each name, kept with `staleFor`. */
  private readonly lastProfiles = new Map<string, ProfileDocument>()

  /** @throws InvalidOptions, also if there are no keys */
  constructor(options: LoginsOptions) {
    const read = checked('new Logins', toOpen, options)
    const { environment = environmentIn(process.env), keys = process.env[KEYS_VARIABLE] } = read
    const { db, store } = options
    this.options = options
    this.place = { db, environment }
    this.keyring = Keyring.from(keys)
    this.guard = new Guard('mongodb', options.logger ?? warnings)
    this.tokens = store.of<Kept>('login', { environment })
  }

  /** Stores a profile, whatever was there; tokens of the earlier version aren't used any more. @returns its version @throws InvalidOptions */
  define(profile: LoginProfile, change: LoginChange): Promise<number> {
    return storeProfile(this.place, this.keyring, profile, change)
  }

  /**
   * The login of a profile, and of a user where the profile has `{{user}}`: from the store, or anew.
   * @throws NotFound for an unknown profile; LoginFailed; KeyUnusable; StillLoading if another process logs in for longer than `lockWait`;
   *   StoreUnavailable
   */
  context(profile: string, user?: string): Promise<Login> {
    return this.login(profile, user)
  }

  /**
   * A new login in place of one that was refused. It logs in only if `replacing` is still the stored token: of all that were refused with the same one,
   * one logs in.
   * @throws as `context`
   */
  refresh(profile: string, user: string | undefined, { replacing }: { readonly replacing: string }): Promise<Login> {
    return this.login(profile, user, replacing)
  }

  /** The login of one profile and user, which is looked up with each use. */
  of(profile: string, user?: string): LoginHandle {
    const context = () => this.context(profile, user)
    const renew = ({ token }: Login) => this.refresh(profile, user, { replacing: token })
    return {
      context,
      async use(call) {
        const login = await context()
        try {
          return await call(login)
        } catch (error) {
          if (!isUnauthorized(error)) throw error
          return await call(await renew(login))
        }
      },
      async fetch(input, init = {}) {
        const send = ({ authorization }: Login) => {
          const headers = new Headers(init.headers)
          headers.set('authorization', authorization)
          return fetch(input, { ...init, headers })
        }
        const login = await context()
        const answer = await send(login)
        if (answer.status !== 401 || init.body instanceof ReadableStream) return answer
        await answer.body?.cancel()
        return await send(await renew(login))
      },
    }
  }

  /**
   * Handles by name, for the `context` of schedules' tasks.
   * @example new Schedules({ db, context: () => ({ logins: logins.named({ crm: 'crm' }) }) })
   */
  named<Names extends NamedLogins>(names: Names, doc?: unknown): { readonly [Name in keyof Names]: LoginHandle } {
    const handles = Object.entries(names).map(([name, meant]) => {
      if (typeof meant === 'string') return [name, this.of(meant)]
      return [name, this.of(meant.profile, meant.user?.(doc as never))]
    })
    return Object.fromEntries(handles) as { readonly [Name in keyof Names]: LoginHandle }
  }

  /**
   * Gives each handler of a lifecycle its logins by name: {@link loginsOf} of its step.
   * @example bindLifecycle(orders, { db, wrap: logins.wrap({ crm: { profile: 'crm', user: (doc: Order) => doc.owner } }) })
   */
  wrap(names: NamedLogins): WrapHandler {
    return (_lifecycle, _phase, handler) => (doc, step) => {
      injected.set(step, this.named(names, doc))
      return handler(doc, step)
    }
  }

  /** The stored profile; while the database is away the last one, where `staleFor` allows that. @throws NotFound; StoreUnavailable */
  private async profileOf(name: string): Promise<ProfileDocument> {
    const mayBeStale = this.options.staleFor !== undefined
    try {
      const found = await this.guard.ask(
        () => `read the login profile '${name}'`,
        () => findProfile(this.place, name),
      )
      if (found && mayBeStale) this.lastProfiles.set(name, found)
      if (found) return found
    } catch (error) {
      const last = error instanceof StoreUnavailable ? this.lastProfiles.get(name) : undefined
      if (last) return last
      throw error
    }
    this.lastProfiles.delete(name)
    throw unknownProfile(this.place, name)
  }

  private async login(name: string, user: string | undefined, replacing?: string): Promise<Login> {
    const { environment } = this.place
    const { profile, secrets, version, at } = await this.profileOf(name)
    if (needsUser(profile) && !user)
      throw new InvalidOptions(`login ${name}`, ['expected a user, because the profile has {{user}}, got none'])
    const whose = needsUser(profile) ? user : undefined
    const place = `the login ${environment}:${name}${whose === undefined ? '' : ` of ${whose}`}`
    const { lockWait = '5s', staleFor, fetch = globalThis.fetch } = this.options
    const kept = await this.tokens.getOrLoad(
      // A profile that was removed and defined again has version 1 again, and another time.
      `${name}@${version}.${at.getTime()}${whose === undefined ? '' : `:${encodeURIComponent(whose)}`}`,
      async ({ signal, keepFor }) => {
        const opened = Object.fromEntries(
          Object.entries(secrets).map(([secret, sealed]) => [
            secret,
            this.keyring.open(sealed, secretPlace(environment, name, secret)),
          ]),
        )
        const { token, keptMs } = await logIn({ profile, user: whose, secrets: opened, signal, fetch })
        keepFor(`${Math.floor(keptMs)}ms`)
        return { sealed: this.keyring.seal(token, place) }
      },
      {
        lockWait,
        lockAtMostFor: '30s',
        staleFor,
        // A process that has a newer key may have sealed it: this one logs in with its own.
        isFresh: ({ sealed }) => ![undefined, replacing].includes(openedBy(this.keyring, sealed, place)),
      },
    )
    return new Login(name, whose, this.keyring.open(kept.sealed, place))
  }
}

const injected = new WeakMap<object, Readonly<Record<string, LoginHandle>>>()

/** The logins of a step that {@link Logins.wrap} has given it. @throws TypeError for a step without any */
export function loginsOf(step: object): Readonly<Record<string, LoginHandle>> {
  const found = injected.get(step)
  if (found) return found
  throw new TypeError(
    'loginsOf: expected a step of a lifecycle that was bound with wrap: logins.wrap({ ... }), got another one',
  )
}

/** True for errors of fetch wrappers, axios, got, the AWS SDK and others that carry a status of 401. */
function isUnauthorized(error: unknown): boolean {
  if (typeof error !== 'object' || error === null) return false
  const { status, statusCode, response, $metadata } = error as Record<string, unknown>
  const nested = [response, $metadata].map((one) =>
    typeof one === 'object' && one !== null ? (one as Record<string, unknown>) : {},
  )
  return [status, statusCode, nested[0]!['status'], nested[0]!['statusCode'], nested[1]!['httpStatusCode']].includes(
    401,
  )
}

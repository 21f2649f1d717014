import type { Credentials } from './credentials.js'

/** The part of `Logins` of phaselock-state that a source needs. */
export interface LoginsOf {
  context(profile: string, user?: string): Promise<{ readonly token: string }>
  refresh(
    profile: string,
    user: string | undefined,
    options: { readonly replacing: string },
  ): Promise<{ readonly token: string }>
}

/**
 * The credentials of a repository's profile by the logins that all replicas share: one process logs in for all, and a token that was refused is
 * replaced once.
 * @example repositories({ db, store, embeddings, credentials: loginCredentials(logins) })
 */
export const loginCredentials =
  (logins: LoginsOf, user?: string): ((profile: string) => Credentials) =>
  (profile) => ({
    token: async () => (await logins.context(profile, user)).token,
    refresh: async ({ replacing }) => (await logins.refresh(profile, user, { replacing })).token,
  })

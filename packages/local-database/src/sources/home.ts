import { homedir } from 'node:os'

/** Returns the user's home; undefined if there is none: HOME is empty and the system knows no such user, as in some containers. */
export function homeOf(env: NodeJS.ProcessEnv): string | undefined {
  if (env['HOME']) return env['HOME']
  try {
    return homedir() || undefined
  } catch {
    return undefined
  }
}

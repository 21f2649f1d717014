import { describe } from '@jest/globals'

/**
 * `describe`, for tests that need something that may not be there: then they are skipped, and say what is missing, but not in CI.
 * @param find rejects with a `Missing` where it isn't there
 * @throws what `find` rejects with, in CI; anything else always
 */
export async function describeWith(
  what: string,
  find: () => Promise<unknown>,
  Missing: abstract new (...args: any[]) => Error,
): Promise<typeof describe | typeof describe.skip> {
  try {
    await find()
    return describe
  } catch (error) {
    if (process.env['CI'] || !(error instanceof Missing)) throw error
    process.stderr.write(`skipped, no ${what}: ${String(error)}\n`)
    return describe.skip
  }
}

/**
 * Returns the result of `start`, or closes `opened` if it fails. An app that fails to start runs no shutdown hooks, and open handles would
 * keep the process alive.
 */
export async function orClose<T>(
  opened: { close(): Promise<unknown> } | undefined,
  start: () => T | Promise<T>,
): Promise<T> {
  try {
    return await start()
  } catch (error) {
    await opened?.close()
    throw error
  }
}

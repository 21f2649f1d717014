import type { RecordedError } from '../../lock/index.js'

const NAME_LIMIT = 200
const MESSAGE_LIMIT = 2_000
const STACK_LIMIT = 4_000

/** What is kept on the document of anything that a handler threw: an Error, a string, undefined. Never throws itself. */
export function recordedError(thrown: unknown): RecordedError {
  if (!(thrown instanceof Error))
    return { name: 'Thrown', message: textOf(thrown, 'undefined').slice(0, MESSAGE_LIMIT) }
  const stack = read(() => thrown.stack)
  return {
    name: textOf(
      read(() => thrown.name),
      'Error',
    ).slice(0, NAME_LIMIT),
    message: textOf(
      read(() => thrown.message),
      '',
    ).slice(0, MESSAGE_LIMIT),
    ...(typeof stack === 'string' ? { stack: stack.slice(0, STACK_LIMIT) } : {}),
  }
}

/** An error's properties may be getters of its author's. */
function read(get: () => unknown): unknown {
  try {
    return get()
  } catch {
    return undefined
  }
}

function textOf(value: unknown, fallback: string): string {
  try {
    return typeof value === 'string' ? value : (JSON.stringify(value) ?? fallback)
  } catch {
    return Object.prototype.toString.call(value)
  }
}

import type { RecordedError } from '../../../lock/index.js'
import { cut, textOf, tried } from '../../kept-text.js'

/** What is kept on the document of anything that a handler threw: an Error, a string, undefined. Never throws itself. */
export function recordedError(thrown: unknown): RecordedError {
  if (!tried(() => thrown instanceof Error)) return { name: 'Thrown', message: cut(textOf(thrown), 'errorMessage') }
  const error = thrown as Error
  const text = (get: () => unknown, fallback: string) => textOf(tried(get), fallback)
  const stack = tried(() => error.stack)
  return {
    name: cut(
      text(() => error.name, 'Error'),
      'errorName',
    ),
    message: cut(
      text(() => error.message, ''),
      'errorMessage',
    ),
    ...(typeof stack === 'string' ? { stack: cut(stack, 'errorStack') } : {}),
  }
}

/** The program of a worker thread: piscina calls `run` for each task. Loaded once per thread, so it loads little itself. */
import { createRequire } from 'node:module'
import type { MessagePort } from 'node:worker_threads'
import { InvalidOutcome } from '../errors.js'
import { textOf } from '../kept-text.js'
import { encodedSet } from './encoded-set.js'
import { Cell, type CheckResult, type StepResult, type StepTask, type Task } from './messages.js'
import { sentError } from './sent-error.js'
import { ThreadStep } from './thread-step.js'
import { type Bson, Wire } from './wire.js'

const require = createRequire(import.meta.url)
/** The library that the driver itself uses: a handler's `import { ObjectId } from 'mongodb'` is the same class. */
const wire = new Wire(createRequire(require.resolve('mongodb'))('bson') as Bson)

/** The step that runs now, to log rejections that nobody awaits. */
let current: ThreadStep | undefined

process.on('unhandledRejection', (error) => {
  current?.log.error('a promise was rejected in a thread and nobody looked; some handler does not await it', { error })
})

export function run(task: Task): Promise<StepResult | CheckResult> {
  return task.kind === 'check' ? check(task) : step(task)
}

async function check(task: Task): Promise<CheckResult> {
  try {
    await handlerOf(task)
    return { problem: undefined }
  } catch (error) {
    return { problem: error instanceof Error ? error.message : String(error) }
  }
}

async function step(task: StepTask): Promise<StepResult> {
  const { port } = task
  try {
    new Cell(task.cell).begins()
    const handler = await handlerOf(task)
    const document = wire.document(task.document)
    const made = new ThreadStep(task, document, wire)
    current = made
    return returned(await handler(document, made), made)
  } catch (error) {
    return { kind: 'threw', error: sentError(error) }
  } finally {
    current = undefined
    release(port)
  }
}

async function handlerOf({ module, export: name }: Task): Promise<(...args: unknown[]) => unknown> {
  const loaded: Record<string, unknown> = await import(module)
  // A CommonJS module's exports may all be on its default.
  const found = loaded[name] ?? (loaded['default'] as Record<string, unknown> | undefined)?.[name]
  if (typeof found === 'function') return found as never
  const names = Object.keys(loaded).filter((key) => typeof loaded[key] === 'function')
  const which = name === 'default' ? 'a default export' : `an export '${name}'`
  const has = names.length > 0 ? `functions that it exports: ${names.join(', ')}` : 'it exports no functions'
  throw new TypeError(
    `${module}: expected ${which} that is a function, got ${found === undefined ? 'none' : typeof found}; ${has}`,
  )
}

/** The outcome in its parts: what can't be sent is refused here, where it can be named. */
function returned(value: unknown, made: ThreadStep): StepResult {
  if (typeof value !== 'object' || value === null) return { kind: 'returned', value: primitive(value), set: undefined }
  if (!made.isOwn(value)) throw new InvalidOutcome('the handler returned an outcome of another step')
  const { set, ...outcome } = value as Record<string, unknown>
  const parts = Object.fromEntries(Object.entries(outcome).map(([name, part]) => [name, primitive(part)]))
  return { kind: 'returned', value: parts, set: set === undefined ? undefined : encodedSet(set, wire) }
}

/** Strings and numbers as they are; for anything else, what the engine would say that it got. */
function primitive(value: unknown): unknown {
  if (typeof value === 'function' || typeof value === 'symbol') return String(value)
  return typeof value === 'object' && value !== null ? textOf(value) : value
}

/** The port is the replica's to close; nothing more is heard on it here. */
function release(port: MessagePort): void {
  port.removeAllListeners('message')
  port.unref()
}

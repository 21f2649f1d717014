import { existsSync } from 'node:fs'
import { isAbsolute } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { readOptions, t } from '../../options/index.js'
import type { Duration } from '../../time/index.js'
import type { Handler } from '../step/step.js'

/** The options of a handler in a thread. */
export interface ThreadOptions {
  /** The name of the module's export that is the handler. Default: its default export. */
  readonly export?: string
  /**
   * The time that the handler may go on after its signal has aborted; then its thread is ended. Default 500ms, 0ms to 1h. At the end of a shutdown's
   * grace there is 1 s in all.
   */
  readonly terminateAfter?: Duration
}

/** A handler in a module of its own, checked as far as that goes without loading it. */
export interface ThreadDeclaration {
  /** The module's file URL. */
  readonly module: string
  readonly export: string
  readonly terminateAfterMs: number
}

/** A `thread(...)` that can't work: says what was expected and what came. */
export class InvalidThread extends Error {
  override readonly name = 'InvalidThread'
}

/** The key for the declaration of a handler in a thread. */
const DECLARATION = Symbol.for('phaselock:thread')
/** The method of the engine's step that runs declarations; a step of another origin (a stand-in in a test) has no threads. */
export const IN_THREAD = Symbol.for('phaselock:in-thread')

/** The part of the engine's step that handlers don't see. */
export interface RunsThreads {
  [IN_THREAD](declaration: ThreadDeclaration, document: Record<string, unknown>): Promise<unknown>
}

// biome-ignore lint/suspicious/noExplicitAny: without its module's type a handler fits every phase, and is checked at run time
type AnyPhase = Handler<any, any>

const threadOptions = t.object({
  export: t.withDefault(t.name, 'default'),
  terminateAfter: t.withDefault(t.duration('0ms', '1h'), '500ms'),
} satisfies t.TypesOf<ThreadOptions>)

/**
 * A handler that runs in a worker thread: renewals and other documents go on while it computes. Its module's export is a handler like any other. The
 * document and the step reach it as copies, and its result comes back as one (docs/threads.md). Give its type, so that it is checked against the
 * phase:
 *
 *     film.handle({ Rendering: thread<typeof import('./render.js').default>(new URL('./render.js', import.meta.url)) })
 *
 * A replica loads the module when it starts, and fails with InvalidLifecycle when it has no such function.
 * @param module its URL, or an absolute path
 * @throws InvalidThread for a value that isn't a module's URL (a function can't be sent to a thread), a missing file, unknown options
 */
export function thread<H extends (document: never, step: never) => Promise<unknown> = AnyPhase>(
  module: URL | string,
  options: ThreadOptions = {},
): H {
  const url = urlOf(module)
  const read = readOptions(threadOptions, options)
  if ('problems' in read) throw new InvalidThread(`thread: ${read.problems.join('; ')}`)
  const { export: name, terminateAfter: terminateAfterMs } = read.options
  const declaration: ThreadDeclaration = { module: withFile(url).href, export: name, terminateAfterMs }
  const handler = async (document: Record<string, unknown>, step: Partial<RunsThreads>) => {
    if (typeof step?.[IN_THREAD] === 'function') return step[IN_THREAD](declaration, document)
    throw new InvalidThread(
      `${described(declaration)} was called with a step that no replica made; expected a replica to call it; to test it, call its module's function directly`,
    )
  }
  return Object.assign(handler, { [DECLARATION]: declaration }) as unknown as H
}

/** The declaration of a handler that was made by `thread`; undefined for others. */
export function threadOf(handler: unknown): ThreadDeclaration | undefined {
  return typeof handler === 'function' ? (handler as { [DECLARATION]?: ThreadDeclaration })[DECLARATION] : undefined
}

/** Makes a handler stand in for another one, which may be known only later: the other's declaration applies to it too. */
export function standsFor<T extends object>(handler: T, other: () => unknown): T {
  if (Object.hasOwn(handler, DECLARATION) || other() === handler) return handler
  return Object.defineProperty(handler, DECLARATION, { get: () => threadOf(other()) })
}

/** A declaration for people: `thread(render.js)`, `thread(render.js, { export: 'render' })`. */
export function described({ module, export: name }: ThreadDeclaration): string {
  const file = decodeURIComponent(module.slice(module.lastIndexOf('/') + 1))
  return name === 'default' ? `thread(${file})` : `thread(${file}, { export: '${name}' })`
}

function urlOf(module: unknown): URL {
  const how = `expected a module's URL, as in thread(new URL('./render.js', import.meta.url))`
  if (typeof module === 'function') {
    const name = module.name ? `the function ${module.name}` : 'a function'
    throw new InvalidThread(
      `thread: ${how}, got ${name}; a closure can't be sent to another thread: put the function in a module of its own`,
    )
  }
  if (typeof module === 'string' && isAbsolute(module)) return pathToFileURL(module)
  const url = module instanceof URL ? module : typeof module === 'string' && URL.canParse(module) && new URL(module)
  if (url && url.protocol === 'file:') return url
  throw new InvalidThread(`thread: ${how}, got ${module instanceof URL ? module.href : JSON.stringify(module)}`)
}

/** The module's URL. From TypeScript sources that Node runs as they are (it strips the types), `./render.js` is `./render.ts`. */
function withFile(url: URL): URL {
  const path = fileURLToPath(url)
  if (existsSync(path)) return url
  const source = path.replace(/\.([cm]?)js$/, '.$1ts')
  if (source !== path && existsSync(source)) return pathToFileURL(source)
  throw new InvalidThread(`thread: expected a module, but there is no file ${path}`)
}

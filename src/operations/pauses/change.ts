import { type Pause, type PausedLimit, pauseTarget } from '../../lock/index.js'
import { type AuditedEnd } from '../../phases/index.js'

/** A pause, with its lifecycle or limit. */
export type ListedPause =
  | (Pause & { readonly lifecycle: string })
  | (PausedLimit & { readonly what: 'limit'; readonly limit: string })

/** The scope of a pause, in words. */
export const pausedText = (pause: ListedPause): string =>
  pause.what === 'limit' ? `limit ${pause.limit}` : pauseTarget(pause.lifecycle, pause)

/** The change of the pauses of one scope: one was added, or ended. */
export interface Changed {
  readonly pause: ListedPause
  readonly before: readonly ListedPause[]
  readonly after: readonly ListedPause[]
}

export const endOf = (changed: readonly Changed[]): AuditedEnd => ({
  outcome: 'done',
  before: { pauses: changed.flatMap(({ before }) => before) },
  after: { pauses: changed.flatMap(({ after }) => after) },
})

type Named = { readonly lifecycle: string } | { readonly what: 'limit'; readonly limit: string }
type Bare = { readonly by: string }

/** @param isAdded true if this pause was added, false if it has ended */
export function changeOf(name: Named, pause: Bare, before: readonly Bare[], isAdded: boolean): Changed {
  const all = before.map((one) => ({ ...name, ...one }) as ListedPause)
  const own = { ...name, ...pause } as ListedPause
  const others = all.filter(({ by }) => by !== pause.by)
  return { pause: own, before: all, after: isAdded ? [...others, own] : others }
}

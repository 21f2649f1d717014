import { type EndKind, removedFields, type StepEnd } from '../record/step-end.js'
import type { EndGroup } from './end-update.js'

/** More in one command is hardly faster (1,000: +5 % over 500, measured) and holds up others for longer. */
const MAX_MEMBERS = 1_000
/** The server looks for each document's own value in a list of all: 250 cost 10 % less than 500 (28 us of its CPU a document, 31). */
const MAX_WITH_DATA = 250

/** True if a lease goes on after this end, under the next token. */
const keepsLease = ({ end }: StepEnd): boolean => end.kind === 'checkpoint' || (end.kind === 'again' && end.keepsLease)

/**
 * Groups the ends that one command may write: same token, kind and content. One token only: `lockedBy: { $in: [...] }` with several
 * would match a document under another document's token.
 * @param most the most documents that one update may cover
 */
export function groupEnds(ends: readonly StepEnd[], most = Number.POSITIVE_INFINITY): EndGroup[] {
  return [...Map.groupBy(ends, keyOf).values()].flatMap((alike) => {
    const groups: EndGroup[] = []
    const size = Math.min(most, alike[0]?.set ? MAX_WITH_DATA : MAX_MEMBERS)
    for (let i = 0; i < alike.length; i += size) groups.push(groupOf(alike.slice(i, i + size)))
    return groups
  })
}

/**
 * A key for ends that may be written together. It is the end itself if its content can't be compared as a string: then it is alone,
 * and never costs the others their verdicts.
 */
function keyOf(one: StepEnd): string | StepEnd {
  const { lease, end, stale, set } = one
  if (!isText(end)) return one
  try {
    return JSON.stringify([lease.token, end, stale, set && removedFields(set)])
  } catch {
    return one
  }
}

/**
 * True if the end can be compared as a string. A compensation's `ifState` is what the owner wrote, of any type: as strings, 5 and
 * Long 5, or a date and its string, look alike.
 */
const isText = (end: EndKind): boolean =>
  end.kind !== 'moveTo' || end.setState === undefined || typeof (end.setState.ifState ?? '') === 'string'

function groupOf(members: readonly StepEnd[]): EndGroup {
  const first = members[0]!
  const { end, lease } = first
  return { token: lease.token, end, members, nextToken: keepsLease(first) ? lease.claim.nextToken() : null }
}

import { typed } from '../../options/index.js'
import { type Census, type Count, sumOf } from '../../phases/index.js'
import { countText } from '../inspect/count-text.js'

/** An error counts as repeated if so many documents have it, or if it is known for so long. */
const [REPEATED, REPEATED_MS] = [3, 300_000]
/** The most errors of a lifecycle that are named one by one. */
const MOST_ERRORS = 3
const LONGEST = 120

const WHY = {
  paused: 'they are paused (phaselock pauses)',
  limit: 'they wait for a slot (phaselock limits)',
  busy: 'replicas are busy, or they refuse writes (phaselock list, show)',
  unhandled: 'no live replica has a handler for it (phaselock replicas)',
} as const

const documents = (count: Count, one: string, many: string) =>
  `${countText(count)} ${count.n === 1 && !count.more ? `document ${one}` : `documents ${many}`}`

/** What a person should look at in one lifecycle, in sentences. */
export function censusProblems(census: Census): string[] {
  const { _id: lifecycle, phases, overdue, broken, loops, callbacks } = census
  const parked = phases.filter((one) => one.parked.n > 0)
  return [
    ...overdue.map(
      ({ phase, documents: n, why }) =>
        `${documents(n, 'has', 'have')} been due in ${phase} for over a minute: ${WHY[why]}`,
    ),
    ...phases
      .filter(({ kind }) => kind === 'unknown')
      .map(
        ({ phase, documents: n }) =>
          `${documents(n, 'is', 'are')} in the unknown phase ${phase}, and left alone (phaselock check)`,
      ),
    ...failing(census),
    ...(parked.length > 0
      ? [`${parkedText(parked.map((one) => one.parked))} parked (phaselock list ${typed(lifecycle)} --parked)`]
      : []),
    ...broken
      .filter(({ field }) => field !== 'phase')
      .map(
        ({ field, found, documents: n }) =>
          `${documents(n, 'has', 'have')} a ${field} that is ${found} (phaselock check --repair)`,
      ),
    ...loops.map(
      ({ phase, documents: n }) => `${documents(n, 'takes', 'take')} step after step in ${phase} without getting on`,
    ),
    ...(callbacks.givenUp.n > 0
      ? [`${documents(callbacks.givenUp, 'has', 'have')} callbacks that were given up (phaselock callbacks)`]
      : []),
  ].map((problem) => `${lifecycle}: ${problem}`)
}

/** Errors that repeat: one that a next try may mend is nothing for a person. */
function failing({ _id: lifecycle, errors, moreErrors, at }: Census): string[] {
  const repeated = errors.filter(
    ({ documents: { n }, firstSeen }) => n >= REPEATED || at.getTime() - firstSeen.getTime() >= REPEATED_MS,
  )
  const named = repeated
    .slice(0, MOST_ERRORS)
    .map(
      ({ documents: n, text }) =>
        `${documents(n, 'fails', 'fail')} with '${text.split('\n')[0]!.slice(0, LONGEST)}' (phaselock list ${typed(lifecycle)} --failing)`,
    )
  const more = repeated.length - named.length + (repeated.length > 0 ? moreErrors : 0)
  return more > 0 ? [...named, `${more} further errors (phaselock list ${typed(lifecycle)} --failing)`] : named
}

const parkedText = (counts: readonly Count[]) => countText(sumOf(counts))

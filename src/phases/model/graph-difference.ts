import { isDeepStrictEqual } from 'node:util'
import type { Document } from 'mongodb'
import { shown } from '../errors/kept-text.js'

/** The most lines: what differs more is another lifecycle. */
const MOST_LINES = 50

/**
 * The differences of two definitions of a lifecycle in words, as they are kept in `phaselock.lifecycles`: from the older to the newer one.
 * @example graphDifferences(older, newer) // ["phase Checking was added (working)", "Packing: next is Shipped, Lost, was Shipped"]
 */
export function graphDifferences(older: Document, newer: Document): string[] {
  const lines = [
    ...phaseDifferences(phasesIn(older), phasesIn(newer)),
    ...listDifferences('rule', rulesIn(older), rulesIn(newer)),
    ...settingDifferences(older, newer),
  ]
  return lines.length > MOST_LINES ? [...lines.slice(0, MOST_LINES), `${lines.length - MOST_LINES} more`] : lines
}

// An entry is a document that people may have changed: what isn't as expected counts as absent.
const objectsIn = (value: unknown): Document[] =>
  Array.isArray(value) ? value.filter((one) => typeof one === 'object' && one !== null) : []

const phasesIn = ({ graph }: Document) => new Map(objectsIn(graph).map((one) => [String(one['name']), one]))

function phaseDifferences(older: ReadonlyMap<string, Document>, newer: ReadonlyMap<string, Document>): string[] {
  const added = [...newer].flatMap(([name, { kind }]) => (older.has(name) ? [] : [`phase ${name} was added (${kind})`]))
  const gone = [...older.keys()].flatMap((name) => (newer.has(name) ? [] : [`phase ${name} is gone`]))
  const changed = [...newer].flatMap(([name, after]) => {
    const before = older.get(name)
    return before ? fieldsChanged(before, after).map((line) => `${name}: ${line}`) : []
  })
  return [...added, ...gone, ...changed]
}

function fieldsChanged(before: Document, after: Document): string[] {
  const names = new Set([...Object.keys(before), ...Object.keys(after)])
  return [...names].flatMap((name) =>
    isDeepStrictEqual(before[name], after[name])
      ? []
      : [`${name} is ${inWords(after[name])}, was ${inWords(before[name])}`],
  )
}

const rulesIn = ({ rules }: Document): string[] =>
  objectsIn(rules).map(({ when, from, goTo }) => `${shown(when)} from ${[from].flat().join(', ')} to ${goTo}`)

function listDifferences(what: string, before: readonly string[], after: readonly string[]): string[] {
  const added = after.flatMap((one) => (before.includes(one) ? [] : [`${what} ${one} was added`]))
  const gone = before.flatMap((one) => (after.includes(one) ? [] : [`${what} ${one} is gone`]))
  return [...added, ...gone]
}

/** What is compared otherwise, or follows from it. */
const ELSEWHERE = new Set(['graph', 'rules', 'phases'])

const settingDifferences = (older: Document, newer: Document): string[] => {
  const settings = (of: Document) => Object.fromEntries(Object.entries(of).filter(([name]) => !ELSEWHERE.has(name)))
  return fieldsChanged(settings(older), settings(newer))
}

function inWords(value: unknown): string {
  if (value === undefined || value === null) return 'absent'
  if (Array.isArray(value) && value.every((one) => typeof one === 'string')) return value.join(', ') || 'none'
  return typeof value === 'string' ? value : shown(value)
}

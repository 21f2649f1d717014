import { InvalidCollection, InvalidFilter, WrongVector } from './errors.js'
import type { CollectionSpec, Point, PointFilter, Vector } from './vector-store.js'

const NAME = /^[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}$/
const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/
const MOST_DIMENSIONS = 16_000

/** The name must fit all databases: PostgreSQL's are the shortest. @throws InvalidCollection */
export function checkName(collection: string): void {
  if (typeof collection === 'string' && NAME.test(collection)) return
  throw new InvalidCollection(
    `collection: expected at most 63 letters, digits, '_', '-' and '.', not beginning with '-' or '.', got '${String(collection).slice(0, 80)}'`,
  )
}

/** @throws InvalidCollection */
export function checkSpec(collection: string, { model, dimensions, chunker }: CollectionSpec): void {
  const problems: string[] = []
  for (const [field, value] of Object.entries({ model, chunker }))
    if (typeof value !== 'string' || value === '' || value.length > 200)
      problems.push(`${field}: expected a text of 1 to 200 characters, got ${String(value).slice(0, 80)}`)
  if (!Number.isInteger(dimensions) || dimensions < 1 || dimensions > MOST_DIMENSIONS)
    problems.push(`dimensions: expected a whole number from 1 to ${MOST_DIMENSIONS}, got ${dimensions}`)
  if (problems.length > 0) throw new InvalidCollection(`collection '${collection}': ${problems.join('; ')}`)
}

/** @throws WrongVector for a number that isn't finite, or when `dimensions` is given and the vector has another */
export function checkVector(vector: Vector, whose: string, dimensions: number = vector.length): void {
  if (vector.length !== dimensions || vector.length === 0)
    throw new WrongVector(`${whose}: expected a vector of ${dimensions || 'more than 0'} numbers, got ${vector.length}`)
  for (let i = 0; i < vector.length; i += 1)
    if (!Number.isFinite(vector[i]))
      throw new WrongVector(`${whose}: expected finite numbers, got ${vector[i]} at ${i}: embed the text again`)
}

/** @throws WrongVector, InvalidFilter */
export function checkPoints(points: readonly Point[]): void {
  const dimensions = points[0]?.vector.length
  for (const { id, path, vector } of points) {
    if (!UUID.test(id)) throw new InvalidFilter(`id: expected a UUID from pointId, got '${String(id).slice(0, 80)}'`)
    checkVector(vector, `point of ${path}`, dimensions)
  }
}

/** @throws InvalidFilter */
export function checkFence(fence: number): void {
  if (!Number.isSafeInteger(fence) || fence < 0)
    throw new InvalidFilter(`fence: expected a whole number from 0 to 2^53 - 1, got ${fence}`)
}

/** @throws InvalidFilter */
export function checkLimit(limit: number, most: number): void {
  if (!Number.isInteger(limit) || limit < 1 || limit > most)
    throw new InvalidFilter(`limit: expected a whole number from 1 to ${most}, got ${limit}`)
}

const FIELDS: readonly string[] = ['repository', 'paths', 'under', 'ids', 'exceptIds'] satisfies (keyof PointFilter)[]

/** Returns the filter without empty parts. @throws InvalidFilter for ids that aren't UUIDs, and fields that it doesn't have */
export function checkedFilter(filter: PointFilter): PointFilter {
  // A misspelt field would otherwise be a filter that matches all points.
  const unknown = Object.keys(filter).find((field) => !FIELDS.includes(field))
  if (unknown !== undefined) throw new InvalidFilter(`filter: expected ${FIELDS.join(', ')}, got '${unknown}'`)
  const id = [...(filter.ids ?? []), ...(filter.exceptIds ?? [])].find((given) => !UUID.test(given))
  if (id !== undefined) throw new InvalidFilter(`ids: expected UUIDs from pointId, got '${String(id).slice(0, 80)}'`)
  const under = filter.under?.replace(/\/+$/, '') || undefined
  const exceptIds = filter.exceptIds?.length ? filter.exceptIds : undefined
  return { ...filter, under, exceptIds }
}

/** Matches nothing, so no server needs to be asked. */
export const isNone = ({ ids, paths }: PointFilter): boolean => ids?.length === 0 || paths?.length === 0

/** Matches every point of the collection. */
export const isAll = (filter: PointFilter): boolean => Object.values(filter).every((value) => value === undefined)

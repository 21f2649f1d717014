import * as v from 'valibot'
import { shown } from './shown.js'

declare const VALUE: unique symbol

/** A check of a value, and its conversion. Only this file knows the validator behind it; no declaration names that. */
export interface Type<out Value = unknown> {
  readonly [VALUE]: Value
}

/** The result type of a valid value. */
export type ValueOf<Of extends Type> = Of[typeof VALUE]

export type Fields = Readonly<Record<string, Type>>

/** A type for each of these options. */
export type TypesOf<Options> = { readonly [option in keyof Required<Options>]: Type }

type MayBeAbsent<F extends Fields> = { [K in keyof F]: undefined extends ValueOf<F[K]> ? K : never }[keyof F]
type ObjectOf<F extends Fields> = { [K in Exclude<keyof F, MayBeAbsent<F>>]: ValueOf<F[K]> } & {
  [K in MayBeAbsent<F>]?: ValueOf<F[K]>
} extends infer O
  ? { readonly [K in keyof O]: O[K] }
  : never

export interface ObjectType<F extends Fields = Fields> extends Type<ObjectOf<F>> {
  readonly fields: F
}

/** A problem in words, or a function that describes it for an invalid value. */
export type Wording = string | ((value: unknown) => string)

/** `expected ..., got ...`: the wording of every option's problem. */
export const expecting = (what: string) => (value: unknown) => `expected ${what}, got ${shown(value)}`

export interface Problem {
  /** The path within the value; empty: the value itself. */
  readonly path: readonly string[]
  readonly message: string
  /** True for an unknown field. */
  readonly isUnknown: boolean
}

/** Returns the converted value, or all of its problems. */
export function readAs<T>(type: Type<T>, given: unknown): { readonly value: T } | { readonly problems: Problem[] } {
  const { success, output, issues } = v.safeParse(schemaOf(type), given)
  if (success) return { value: output as T }
  return {
    problems: issues.map(({ path = [], message, type: kind }) => ({
      path: path.map(({ key }) => String(key)),
      message,
      isUnknown: kind === 'never',
    })),
  }
}

/** True if the value is of this type. */
export const fits = (type: Type, value: unknown): boolean => v.is(schemaOf(type), value)

/** Converts a value before it is checked. */
export const prepared = <T>(prepare: (given: unknown) => unknown, type: Type<T>) =>
  typed<T>(v.pipe(v.unknown(), v.transform(prepare), schemaOf(type)))

/** Chooses the type by the given value. */
export const chosen = <T>(choose: (given: unknown) => Type<T>) => typed<T>(v.lazy((given) => schemaOf(choose(given))))

/** A value that satisfies this predicate. */
export const where = <T>(isRight: (value: unknown) => boolean, wording: Wording) =>
  typed<T>(v.custom(isRight, worded(wording)))

export const optional = <T>(type: Type<T>) => typed<T | undefined>(v.optional(schemaOf(type)))

/** @param value the value to use if none is given */
export const withDefault = <T>(type: Type<T>, value: unknown) =>
  typed<Exclude<T, undefined>>(v.optional(schemaOf(type), value as never))

/** Treats an invalid value as absent. */
export const orAbsent = <T>(type: Type<T>) => typed<T | undefined>(v.fallback(v.optional(schemaOf(type)), undefined))

/** Adds a condition for an otherwise valid value. @param path the part of it that the problem is about */
export function checked<T>(type: Type<T>, isRight: (value: T) => boolean, wording: Wording, path?: readonly string[]) {
  const check = v.check(isRight, worded(wording))
  const told = path ? (v.forward(check as never, path as never) as typeof check) : check
  return typed<T>(v.pipe(schemaOf(type), told))
}

export const converted = <T, U>(type: Type<T>, convert: (value: T) => U) =>
  typed<U>(v.pipe(schemaOf(type), v.transform(convert)))

export const list = <T>(type: Type<T>, wording: Wording) =>
  typed<readonly T[]>(v.array(schemaOf(type), worded(wording)))

/** An object with any keys. */
export const record = <T>(type: Type<T>) =>
  typed<Readonly<Record<string, T>>>(v.pipe(anObject(), v.record(v.string(), schemaOf(type))))

/** An object of these fields: every other field is reported. */
export const object = <const F extends Fields>(fields: F, wording?: Wording): ObjectType<F> =>
  objectOf(fields, (entries, message) => v.objectWithRest(entries, v.never(), message), wording)

/** An object of which only these fields are read. */
export const partOf = <const F extends Fields>(fields: F): ObjectType<F> =>
  objectOf(fields, (entries, message) => v.object(entries, message))

type Message = (issue: v.BaseIssue<unknown>) => string

function objectOf<F extends Fields>(
  fields: F,
  make: (entries: v.ObjectEntries, message: Message) => v.GenericSchema<object>,
  wording?: Wording,
): ObjectType<F> {
  // The validator has one wording for all missing fields: here each field's own type says what it expected.
  const entries = fields as object as v.ObjectEntries
  const message: Message = ({ path }) => v.safeParse(entries[String(path![0].key)]!, undefined).issues![0].message
  const schema = v.pipe(anObject(wording), make(entries, message))
  return Object.assign(typed<ObjectOf<F>>(schema), { fields })
}

/** Excludes the other objects: the validator also accepts lists, dates and more. */
const anObject = (wording: Wording = expecting('an object')) =>
  v.custom<object>((value) => Object.prototype.toString.call(value) === '[object Object]', worded(wording))

const typed = <T>(schema: object) => schema as Type<T>
const schemaOf = <T>(type: Type<T>) => type as object as v.GenericSchema<T>

const worded = (wording: Wording) =>
  typeof wording === 'string' ? () => wording : ({ input }: { readonly input: unknown }) => wording(input)

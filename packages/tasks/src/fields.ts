import * as v from 'valibot'

type Told = { readonly input: unknown }

/** Formats a value for a message. */
const shown = (value: unknown): string => {
  const text = JSON.stringify(value, (_, part) => (typeof part === 'bigint' ? String(part) : part)) ?? String(value)
  return text.length > 100 ? `${text.slice(0, 100)}...` : text
}

/** A message for any kind of wrong value, with the expected and the given one. */
export const expecting =
  (what: string) =>
  ({ input }: Told) =>
    `expected ${what}, got ${shown(input)}`

export const wholeNumber = (least: number, most: number, what: string) =>
  v.custom<number>(
    (value) => Number.isSafeInteger(value) && (value as number) >= least && (value as number) <= most,
    expecting(what),
  )

export const someText = v.pipe(v.string('expected a string'), v.nonEmpty('expected a string that is not empty'))

/** Excludes the other objects: the validator also accepts lists, dates and more. */
const anObject = (message: (told: Told) => string) =>
  v.custom<object>((value) => Object.prototype.toString.call(value) === '[object Object]', message)

/** An object with any keys of this kind. */
export const recordOf = <K extends v.GenericSchema<string, string>, V extends v.GenericSchema>(
  key: K,
  value: V,
  message: (told: Told) => string,
) => v.pipe(anObject(message), v.record(key, value))

/** The message for a missing field, from its own type, and the one for an unknown field. */
const about =
  (entries: v.ObjectEntries, unknown: (told: Told) => string) =>
  ({ expected, path }: v.BaseIssue<unknown>): string => {
    const { key, input } = path![0]
    if (expected === 'never') return unknown({ input })
    return v.safeParse(entries[String(key)]!, undefined).issues![0].message
  }

/** An object of these fields only. @param message the message for anything else, and for an object with other fields */
export const fieldsOf = <const E extends v.ObjectEntries>(entries: E, message: (told: Told) => string) =>
  v.pipe(anObject(message), v.strictObject(entries, about(entries, message)))

/** An object whose other fields are ignored. */
export const someFieldsOf = <const E extends v.ObjectEntries>(entries: E) =>
  v.object(entries, about(entries, expecting('other fields')))

/** Each problem with its path: `ports.0.port: expected a port from 1 to 65535, got 0`. */
export function problemsOf(issues: readonly v.BaseIssue<unknown>[]): string[] {
  return issues.map(({ expected, path = [], message }) => {
    const keys = path.map(({ key }) => String(key))
    const at = (expected === 'never' ? keys.slice(0, -1) : keys).join('.')
    return at === '' ? message : `${at}: ${message}`
  })
}

import { nearest } from './nearest.js'
import { type Fields, type ObjectType, readAs, type ValueOf } from './type.js'

export interface OptionNames {
  /** The word for an option in messages. Default `option`. */
  readonly noun?: string
  /** Names that are known besides those that are checked. */
  readonly also?: readonly string[]
  /** Known names that aren't listed in messages. */
  readonly internal?: readonly string[]
  /** Former names of options, with the present ones. */
  readonly renamed?: Readonly<Record<string, string>>
}

/** Options that the called function can't use: lists each with the expected and the given value. */
export class InvalidOptions extends Error {
  override readonly name = 'InvalidOptions'
  constructor(
    /** The function that was called: `new Cluster`. */
    readonly called: string,
    /** One sentence for each problem. */
    readonly problems: readonly string[],
  ) {
    super(`${called}: ${problems.join('; ')}`)
  }
}

/** Returns the checked options. @throws InvalidOptions with all of their problems */
export function checkOptions<F extends Fields>(
  called: string,
  types: ObjectType<F>,
  given: unknown,
  names?: OptionNames,
) {
  const read = readOptions(types, given, names)
  if ('problems' in read) throw new InvalidOptions(called, read.problems)
  return read.options
}

/** Returns the options, checked by type and with their defaults; or all of their problems. */
export function readOptions<F extends Fields>(
  types: ObjectType<F>,
  given: unknown,
  names: OptionNames = {},
): { readonly options: ValueOf<ObjectType<F>> } | { readonly problems: readonly string[] } {
  const read = readAs(types, given)
  if ('value' in read) return { options: read.value }
  return {
    problems: read.problems.flatMap(({ path, message, isUnknown }) => {
      if (isUnknown && path.length === 1) return unknownOptions(path, Object.keys(types.fields), names)
      const at = path.join('.')
      if (isUnknown) return `unknown ${names.noun ?? 'option'} '${at}'`
      return at === '' ? message : `${at}: ${message}`
    }),
  }
}

/** Returns a problem for each unknown name: with its present name, or the one that was probably meant and all known ones. */
export function unknownOptions(
  given: Iterable<string>,
  known: readonly string[],
  { noun = 'option', also = [], internal = [], renamed = {} }: OptionNames = {},
): string[] {
  const told = [...also, ...known.filter((name) => !internal.includes(name))]
  return [...given]
    .filter((name) => !known.includes(name) && !also.includes(name))
    .map((name) =>
      Object.hasOwn(renamed, name)
        ? renamedNow(name, renamed[name]!)
        : `unknown ${noun} '${name}'${meant(name, told)}; known: ${told.join(', ')}`,
    )
}

/** The problem of a former name. */
export const renamedNow = (former: string, name: string): string =>
  `expected ${name}, got ${former}: it is called ${name} now`

/** Returns `(did you mean 'x'?)` or an empty string. All names of one or two letters are near each other, so only their case is corrected. */
export function meant(name: string, known: readonly string[]): string {
  const sameLetters = (other: string) => other.toLowerCase() === name.toLowerCase()
  const near = name.length > 2 ? nearest(name, known) : known.find(sameLetters)
  return near === undefined ? '' : ` (did you mean '${near}'?)`
}

import { nearest } from './nearest.js'
import { type Fields, type ObjectType, readAs, type ValueOf } from './type.js'

export interface OptionNames {
  /** What an option is called. Default `option`. */
  readonly noun?: string
  /** Names that are known besides those that are checked. */
  readonly also?: readonly string[]
  /** Known, but not listed. */
  readonly internal?: readonly string[]
  /** Former names of options, with the present ones. */
  readonly renamed?: Readonly<Record<string, string>>
}

/** What was called with options that it can't use: says which, what was expected and what was given. */
export class InvalidOptions extends Error {
  override readonly name = 'InvalidOptions'
  constructor(
    /** What was called: `new Cluster`. */
    readonly called: string,
    /** One sentence for each problem. */
    readonly problems: readonly string[],
  ) {
    super(`${called}: ${problems.join('; ')}`)
  }
}

/** @throws InvalidOptions with everything that is wrong with them */
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

/** The options, checked by type and with their defaults; or everything that is wrong with them. */
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

/** A problem for each unknown name: with the name it has now, or the one that was probably meant and all known ones. */
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
        ? `${noun} '${name}' is now called '${renamed[name]}'`
        : `unknown ${noun} '${name}'${meant(name, told)}; known: ${told.join(', ')}`,
    )
}

/** `(did you mean 'x'?)` or nothing. All names of one or two letters are near each other, so only their case is corrected. */
export function meant(name: string, known: readonly string[]): string {
  const sameLetters = (other: string) => other.toLowerCase() === name.toLowerCase()
  const near = name.length > 2 ? nearest(name, known) : known.find(sameLetters)
  return near === undefined ? '' : ` (did you mean '${near}'?)`
}

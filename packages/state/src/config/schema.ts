/**
 * A schema of any library that implements Standard Schema 1 (https://standardschema.dev): zod 4, valibot 1, ArkType 2 and others. Only the part
 * that is used is described.
 */
export interface StandardSchema<Output = unknown> {
  readonly '~standard': {
    readonly version: 1
    readonly vendor: string
    readonly validate: (value: unknown) => Validated<Output> | Promise<Validated<Output>>
  }
}

type Validated<Output> = { readonly value: Output; readonly issues?: undefined } | { readonly issues: readonly Issue[] }

interface Issue {
  readonly message: string
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined
}

/** A value as a schema gave it, or what the schema has against it, one line each: `smtp.port: Expected number but received "x"`. */
export type Judged<T> = { readonly value: T; readonly issues?: undefined } | { readonly issues: readonly string[] }

/** The limits of what is kept of a refusal. */
const MOST_ISSUES = 20
const LONGEST_ISSUE = 300

/** Judges a value. A schema that throws refuses the value. */
export async function judged<T>(schema: StandardSchema<T>, value: unknown): Promise<Judged<T>> {
  try {
    const result = await schema['~standard'].validate(value)
    if (!result.issues) return { value: result.value }
    return { issues: result.issues.slice(0, MOST_ISSUES).map(lineOf) }
  } catch (error) {
    return { issues: [`the schema has thrown: ${error instanceof Error ? error.message : String(error)}`] }
  }
}

function lineOf({ message, path = [] }: Issue): string {
  const keys = path.map((part) => String(typeof part === 'object' ? part.key : part))
  return `${keys.length > 0 ? `${keys.join('.')}: ` : ''}${message}`.slice(0, LONGEST_ISSUE)
}

export const isSchema = (value: unknown): value is StandardSchema =>
  typeof (value as Partial<StandardSchema> | undefined)?.['~standard']?.validate === 'function'

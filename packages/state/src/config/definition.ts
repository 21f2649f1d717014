import { InvalidOptions } from 'phaselock'
import { isSchema, type StandardSchema } from './schema.js'
import { A_NAME, isName } from './versions.js'

/** A configuration of the app: its name, the schema of its values, and the value until one is stored. */
export interface ConfigDefinition<T = unknown> {
  readonly name: string
  readonly schema: StandardSchema<T>
  /** The value in force until one is stored. It isn't written to the database. */
  readonly initial: unknown
}

/**
 * Defines a configuration. Values are stored as they were given; the app reads what the schema makes of them, with its defaults.
 * @example
 * ```ts
 * import { z } from 'zod'
 *
 * export const mail = defineConfig({
 *   name: 'mail',
 *   schema: z.object({ host: z.string(), port: z.number().default(587) }),
 *   initial: { host: 'localhost' },
 * })
 * ```
 * @throws InvalidOptions
 */
export function defineConfig<T>(definition: ConfigDefinition<T>): ConfigDefinition<T> {
  const { name, schema, initial, ...others } = definition
  const problems = [
    ...Object.keys(others).map((option) => `expected name, schema and initial, got also ${option}`),
    ...(isName(name) ? [] : [`name: expected ${A_NAME}, got ${JSON.stringify(name)}`]),
    ...(isSchema(schema)
      ? []
      : [`schema: expected one of Standard Schema (zod, valibot, ArkType), got ${typeof schema}`]),
    ...('initial' in definition ? [] : ['initial: expected the value until one is stored, got none']),
  ]
  if (problems.length > 0) throw new InvalidOptions('defineConfig', problems)
  return Object.freeze({ name, schema, initial })
}

/** The value was refused by the schema of its configuration; nothing was stored. */
export class InvalidConfig extends Error {
  override readonly name = 'InvalidConfig'
  constructor(
    /** The name of the configuration. */
    readonly config: string,
    /** The issues of the schema, one line each. */
    readonly issues: readonly string[],
  ) {
    super(`${config}: expected a value that its schema accepts; ${issues.join('; ')}`)
  }
}

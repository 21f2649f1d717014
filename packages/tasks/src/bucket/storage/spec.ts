import * as v from 'valibot'
import { expecting, fieldsOf, problemsOf, someText as text } from '../../fields.js'

const REFERENCE = "{ env: 'PREFIX' }, { folder: '/path' }, { secret: ... }"

/** A reference to the keys of a storage; a document never contains the keys themselves. */
const reference = v.union(
  [
    v.strictObject({ env: text }),
    v.strictObject({ folder: text }),
    v.strictObject({ secret: v.unknown() }),
    v.literal('default'),
  ],
  `expected ${REFERENCE} or 'default'`,
)

const isHttp = (address: string) => /^https?:\/\//i.test(address) && URL.canParse(address)

const common = {
  endpoint: v.optional(
    v.pipe(
      v.string('expected an http or https address'),
      v.trim(),
      v.check(isHttp, 'expected an http or https address'),
    ),
  ),
  region: v.optional(text),
  pathStyle: v.optional(v.boolean(expecting('true or false'))),
}

/** Shows only the names of the given fields: their values may contain keys. */
const what = ({ input }: { readonly input: unknown }) => {
  const got = typeof input === 'object' && input !== null ? `{ ${Object.keys(input).join(', ')} }` : `a ${typeof input}`
  return `expected { endpoint, region, pathStyle, credentials }, got ${got}`
}
const storageSpec = fieldsOf({ ...common, credentials: reference }, what)
const storageSpecInCode = fieldsOf(
  {
    ...common,
    credentials: v.union(
      [reference, v.strictObject({ accessKeyId: text, secretAccessKey: text })],
      `expected ${REFERENCE}, { accessKeyId, secretAccessKey } or 'default'`,
    ),
  },
  what,
)

/**
 * The source of the keys of a storage:
 * - `env`: the variables `<env>_ACCESS_KEY_ID` and `<env>_SECRET_ACCESS_KEY`
 * - `folder`: the files `accessKeyId` and `secretAccessKey` in it, as a mounted Kubernetes Secret has them
 * - `secret`: anything; the option `secrets` is called with it and resolves to the keys
 * - `default`: the AWS SDK's own search (environment, profile, the pod's or machine's role)
 */
export type CredentialsReference =
  | { readonly env: string }
  | { readonly folder: string }
  | { readonly secret: unknown }
  | 'default'

/** A storage as a document in `StorageRegion` describes it, without its `_id`. */
export interface StorageSpec {
  readonly endpoint?: string | undefined
  readonly region?: string | undefined
  readonly pathStyle?: boolean | undefined
  readonly credentials: CredentialsReference
}

/** A storage as the options describe it: with keys, if needed. */
export interface StorageSpecInCode extends Omit<StorageSpec, 'credentials'> {
  readonly credentials: CredentialsReference | { readonly accessKeyId: string; readonly secretAccessKey: string }
}

/** @returns the description, or its problems @param withKeys true if it may contain keys */
export function parseStorage(value: unknown, withKeys: boolean): StorageSpecInCode | string {
  const { success, output, issues } = v.safeParse(withKeys ? storageSpecInCode : storageSpec, value)
  return success ? output : problemsOf(issues).join('; ')
}

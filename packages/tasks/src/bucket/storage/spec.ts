import { z } from 'zod'

const text = z.string().min(1)

/** Where the keys of a storage are; a document never has them itself. */
const reference = z.union(
  [
    z.strictObject({ env: text }),
    z.strictObject({ folder: text }),
    z.strictObject({ secret: z.unknown() }),
    z.literal('default'),
  ],
  { error: "expected { env: 'PREFIX' }, { folder: '/path' }, { secret: ... } or 'default'" },
)

const common = {
  endpoint: z.url({ protocol: /^https?$/, error: 'expected an http or https address' }).optional(),
  region: text.optional(),
  pathStyle: z.boolean().optional(),
}

const storageSpec = z.strictObject({ ...common, credentials: reference })
const storageSpecInCode = z.strictObject({
  ...common,
  credentials: z.union([reference, z.strictObject({ accessKeyId: text, secretAccessKey: text })], {
    error:
      "expected { env: 'PREFIX' }, { folder: '/path' }, { secret: ... }, { accessKeyId, secretAccessKey } or 'default'",
  }),
})

/**
 * Where to find the keys of a storage:
 * - `env`: the variables `<env>_ACCESS_KEY_ID` and `<env>_SECRET_ACCESS_KEY`
 * - `folder`: the files `accessKeyId` and `secretAccessKey` in it, as a mounted Kubernetes Secret has them
 * - `secret`: anything; the option `secrets` is called with it and resolves to the keys
 * - `default`: where the AWS SDK looks by itself (environment, profile, the pod's or machine's role)
 */
export type CredentialsReference = z.infer<typeof reference>

/** A storage as a document in `StorageRegion` describes it, without its `_id`. */
export type StorageSpec = z.infer<typeof storageSpec>
/** A storage as the options describe it: with keys, if needed. */
export type StorageSpecInCode = z.infer<typeof storageSpecInCode>

/** @returns the description, or what is wrong with it @param withKeys whether it may contain keys */
export function parseStorage(value: unknown, withKeys: boolean): StorageSpecInCode | string {
  const checked = (withKeys ? storageSpecInCode : storageSpec).safeParse(value)
  if (checked.success) return checked.data
  return checked.error.issues
    .map(({ path, message }) => [path.join('.'), message].filter(Boolean).join(': '))
    .join('; ')
}

import { z } from 'zod'

const IMAGE_LENGTH = 512
const HOST = '[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?(?:\\.[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)*(?::[0-9]{1,5})?'
const PART = '[a-z0-9]+(?:(?:\\.|__?|-+)[a-z0-9]+)*'
const TAG = '[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}'
const DIGEST = '[A-Za-z][A-Za-z0-9]*:[0-9a-f]{32,128}'
const IMAGE = new RegExp(`^(?:${HOST}/)?${PART}(?:/${PART})*(?::${TAG})?(?:@${DIGEST})?$`)
const QUANTITY = /^(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?$/
const VARIABLE = /^[A-Za-z_][A-Za-z0-9_]*$/
const OBJECT_NAME = /^[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?$/
const KEY = /^[A-Za-z0-9._-]{1,253}$/
const RESOURCE = /^[a-z0-9A-Z][a-zA-Z0-9./_-]{0,252}$/
/** MongoDB documents hold 16 MB, an object in Kubernetes about 1.5 MB. */
const TEXT_LENGTH = 128 * 1024

const shown = (value: unknown): string => {
  const text = JSON.stringify(value) ?? String(value)
  return text.length > 100 ? `${text.slice(0, 100)}...` : text
}

/** A message for any kind of wrong value: what was expected, what came. */
export const expecting = (what: string) => ({
  error: (issue: { readonly input?: unknown }) => `expected ${what}, got ${shown(issue.input)}`,
})

const matching = (pattern: RegExp, what: string, length = 253) =>
  z.string(expecting(what)).refine((text) => text.length <= length && pattern.test(text), expecting(what))

export const objectName = (what: string) =>
  matching(OBJECT_NAME, `${what} (lower-case letters, digits, '-' and '.', 253 at most)`)

/** No control characters except tab and line ends: neither the API server nor a container's environment accepts NUL. */
const text = (what: string) =>
  z.string(expecting(what)).refine((value) => value.length <= TEXT_LENGTH && !value.includes('\0'), expecting(what))

const QUANTITY_EXAMPLES = "an amount such as '250m' or '128Mi'"
const quantity = z
  .union([z.string(), z.number().transform(String)])
  .or(z.never(expecting(QUANTITY_EXAMPLES)))
  .refine((value) => value.length <= 40 && QUANTITY.test(value), expecting(QUANTITY_EXAMPLES))

const quantities = z.record(
  z.string().regex(RESOURCE, "expected resources by name, such as { cpu: '250m', memory: '128Mi' }"),
  quantity,
  expecting("amounts by resource, such as { cpu: '250m', memory: '128Mi' }"),
)

const secretKey = z.strictObject(
  {
    name: objectName("a Secret's name"),
    key: matching(KEY, "a Secret's key"),
    optional: z.boolean(expecting('true or false')).optional(),
  },
  expecting('{ name, key } of a Secret'),
)

const ENV_VALUE = 'a string, a number, true, false or { secret: { name, key } }'
const envValue = z
  .union([
    text(ENV_VALUE).transform((value) => ({ value })),
    z.union([z.number(), z.boolean()]).transform((value) => ({ value: String(value) })),
    z.strictObject({ secret: secretKey }),
  ])
  .or(z.never(expecting(ENV_VALUE)))

/** The fields of {@link ContainerFields}; a document's other fields are not looked at. */
export const containerShape = {
  image: matching(IMAGE, "an image such as 'registry.example.org/shop:1.2'", IMAGE_LENGTH),
  command: z.array(text('a list of strings'), expecting('a list of strings')).max(1_000).optional(),
  args: z.array(text('a list of strings'), expecting('a list of strings')).max(1_000).optional(),
  env: z
    .record(
      z.string().regex(VARIABLE, 'expected names of letters, digits and _, no digit first'),
      envValue,
      expecting("variables by name, such as { MODE: 'fast' }"),
    )
    .default({}),
  resources: z
    .strictObject({ requests: quantities.optional(), limits: quantities.optional() }, expecting('{ requests, limits }'))
    .optional(),
  imagePullSecrets: z.array(objectName("a Secret's name"), expecting('a list of Secrets by name')).default([]),
}

/** The checked fields of a pod's container. */
export type ContainerSpec = z.infer<z.ZodObject<typeof containerShape>>

/**
 * Checks an owner's fields before anything is made from them.
 * @returns the checked fields, or the problems in one string: `image: expected an image such as ..., got "a b"`
 */
export function checkFields<Shape extends z.ZodType>(
  shape: Shape,
  document: object,
): { readonly spec: z.infer<Shape> } | { readonly problem: string } {
  const parsed = shape.safeParse(withoutNulls(document))
  if (parsed.success) return { spec: parsed.data }
  const problems = parsed.error.issues.map((issue) => `${issue.path.join('.')}: ${messageOf(issue)}`)
  return { problem: problems.slice(0, 10).join('; ') }
}

/** Many drivers write null for an absent field. */
const withoutNulls = (document: object) =>
  Object.fromEntries(Object.entries(document).filter(([, value]) => value !== null))

/** A failed union reports only that; the messages of its members amount to the same. */
function messageOf(issue: z.core.$ZodIssue): string {
  if (issue.code === 'invalid_key') return issue.issues[0]?.message ?? issue.message
  if (issue.code === 'invalid_union') {
    const inner = issue.errors.flat().at(-1)
    if (inner) return inner.path.length > 0 ? `${inner.path.join('.')}: ${inner.message}` : inner.message
  }
  return issue.message
}

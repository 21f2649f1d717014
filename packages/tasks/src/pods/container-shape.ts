import * as v from 'valibot'
import { expecting, fieldsOf, problemsOf, recordOf, type someFieldsOf } from '../fields.js'

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

const matching = (pattern: RegExp, what: string, length = 253) =>
  v.pipe(
    v.string(expecting(what)),
    v.check((text) => text.length <= length && pattern.test(text), expecting(what)),
  )

const objectName = (what: string) =>
  matching(OBJECT_NAME, `${what} (lower-case letters, digits, '-' and '.', 253 at most)`)

/** A text without NUL: neither the API server nor a container's environment accepts it. */
const text = (what: string) =>
  v.pipe(
    v.string(expecting(what)),
    v.check((value) => value.length <= TEXT_LENGTH && !value.includes('\0'), expecting(what)),
  )

const texts = v.pipe(
  v.array(text('a list of strings'), expecting('a list of strings')),
  v.maxLength(1_000, 'expected 1000 strings at most'),
)

const amount = expecting("an amount such as '250m' or '128Mi'")
const quantity = v.pipe(
  v.union([v.string(), v.pipe(v.number(), v.finite(), v.transform(String))], amount),
  v.check((value) => value.length <= 40 && QUANTITY.test(value), amount),
)

const quantities = recordOf(
  v.pipe(v.string(), v.regex(RESOURCE, "expected resources by name, such as { cpu: '250m', memory: '128Mi' }")),
  quantity,
  expecting("amounts by resource, such as { cpu: '250m', memory: '128Mi' }"),
)

const secretKey = fieldsOf(
  {
    name: objectName("a Secret's name"),
    key: matching(KEY, "a Secret's key"),
    optional: v.optional(v.boolean(expecting('true or false'))),
  },
  expecting('{ name, key } of a Secret'),
)

const ENV_VALUE = 'a string, a number, true, false or { secret: { name, key } }'
const envValue = v.union(
  [
    v.pipe(
      text(ENV_VALUE),
      v.transform((value) => ({ value })),
    ),
    v.pipe(
      v.union([v.pipe(v.number(), v.finite()), v.boolean()]),
      v.transform((value) => ({ value: String(value) })),
    ),
    fieldsOf({ secret: secretKey }, expecting(ENV_VALUE)),
  ],
  expecting(ENV_VALUE),
)

/** The fields of {@link ContainerFields}; a document's other fields are ignored. */
export const containerShape = {
  image: matching(IMAGE, "an image such as 'registry.example.org/shop:1.2'", IMAGE_LENGTH),
  command: v.optional(texts),
  args: v.optional(texts),
  env: v.optional(
    recordOf(
      v.pipe(v.string(), v.regex(VARIABLE, 'expected names of letters, digits and _, no digit first')),
      envValue,
      expecting("variables by name, such as { MODE: 'fast' }"),
    ),
    {},
  ),
  resources: v.optional(
    fieldsOf({ requests: v.optional(quantities), limits: v.optional(quantities) }, expecting('{ requests, limits }')),
  ),
  imagePullSecrets: v.optional(v.array(objectName("a Secret's name"), expecting('a list of Secrets by name')), []),
}

/** The checked fields of a pod's container. */
export type ContainerSpec = v.InferOutput<ReturnType<typeof someFieldsOf<typeof containerShape>>>

/**
 * Checks an owner's fields before any object is created from them.
 * @returns the checked fields, or the problems in one string: `image: expected an image such as ..., got "a b"`
 */
export function checkFields<Shape extends v.GenericSchema>(
  shape: Shape,
  document: object,
): { readonly spec: v.InferOutput<Shape> } | { readonly problem: string } {
  const { success, output, issues } = v.safeParse(shape, withoutNulls(document))
  return success ? { spec: output } : { problem: problemsOf(issues).slice(0, 10).join('; ') }
}

/** Many drivers write null for an absent field. */
const withoutNulls = (document: object) =>
  Object.fromEntries(Object.entries(document).filter(([, value]) => value !== null))

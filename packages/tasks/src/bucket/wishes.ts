import * as v from 'valibot'
import { expecting, fieldsOf, problemsOf, recordOf, someText as text } from '../fields.js'
import type { Bucket } from './documents.js'
import { nameProblem } from './names.js'

const texts = v.union([text, v.pipe(v.array(text), v.nonEmpty())], expecting('a string, or a list of them'))
const statement = fieldsOf(
  {
    Sid: v.optional(v.string()),
    Effect: v.picklist(['Allow', 'Deny']),
    Principal: v.union([v.literal('*'), recordOf(v.string(), texts, expecting('an object'))]),
    Action: texts,
    Resource: v.optional(texts),
    Condition: v.optional(recordOf(v.string(), v.unknown(), expecting('an object'))),
  },
  expecting('a statement'),
)

const POLICY = "expected 'private', 'public-read' or statements ({ Effect, Principal, Action, ... })"
const policies = v.union([v.picklist(['private', 'public-read']), v.pipe(v.array(statement), v.nonEmpty())])
const wishes = v.object({
  region: v.nullish(text),
  policy: v.custom((value) => v.is(policies, value), POLICY),
  quotaBytes: v.nullish(
    v.custom<number>((value) => Number.isSafeInteger(value) && (value as number) >= 0, 'expected a number of bytes'),
  ),
  versioning: v.nullish(v.boolean('expected true or false')),
})

/** The problem with the owner's fields, in words; found before any request to the storage. */
export function wishProblem(doc: Readonly<Bucket>, name: string): string | undefined {
  const wrongName = nameProblem(name)
  if (wrongName) return wrongName
  const { region, policy = 'private', quotaBytes, versioning } = doc
  const { success, issues } = v.safeParse(wishes, { region, policy, quotaBytes, versioning })
  return success ? undefined : problemsOf(issues).join('; ')
}

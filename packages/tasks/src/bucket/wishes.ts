import { z } from 'zod'
import type { Bucket } from './documents.js'
import { nameProblem } from './names.js'

const texts = z.union([z.string().min(1), z.array(z.string().min(1)).min(1)])
const statement = z.strictObject({
  Sid: z.string().optional(),
  Effect: z.enum(['Allow', 'Deny']),
  Principal: z.union([z.literal('*'), z.record(z.string(), texts)]),
  Action: texts,
  Resource: texts.optional(),
  Condition: z.record(z.string(), z.unknown()).optional(),
})

const wishes = z.object({
  region: z.string().min(1).nullish(),
  policy: z.union([z.enum(['private', 'public-read']), z.array(statement).min(1)], {
    error: "expected 'private', 'public-read' or statements ({ Effect, Principal, Action, ... })",
  }),
  quotaBytes: z.number('expected a number of bytes').int().min(0).nullish(),
  versioning: z.boolean('expected true or false').nullish(),
})

/** What is wrong with the owner's fields, in words; found before any request to the storage. */
export function wishProblem(doc: Readonly<Bucket>, name: string): string | undefined {
  const wrongName = nameProblem(name)
  if (wrongName) return wrongName
  const { region, policy = 'private', quotaBytes, versioning } = doc
  const checked = wishes.safeParse({ region, policy, quotaBytes, versioning })
  if (checked.success) return undefined
  return checked.error.issues.map(({ path, message }) => `${path.join('.')}: ${message}`).join('; ')
}

import { distinctName } from 'phaselock/tasks'
import type { Bucket } from './documents.js'

const LONGEST = 63
const SHORTEST = 3
const CHARACTERS = /^[a-z0-9][a-z0-9.-]*[a-z0-9]$/
const IP_ADDRESS = /^\d+\.\d+\.\d+\.\d+$/
const TAKEN_BEGINNINGS = ['xn--', 'sthree-', 'amzn-s3-demo-']
const TAKEN_ENDINGS = ['-s3alias', '--ol-s3', '.mrap', '--x-s3', '--table-s3']

/** The bucket name for a document: its `name`, else one derived from its `_id` with the prefix. */
export function bucketNameFor(doc: Pick<Bucket, '_id' | 'name'>, prefix: string): string {
  if (doc.name !== undefined && doc.name !== null) return doc.name
  const room = LONGEST - prefix.length
  return `${prefix}${distinctName(doc._id, (text) => text.length <= room && nameProblem(`${prefix}${text}`) === undefined, room)}`
}

/** The problem with a bucket's name by the rules that all S3 storages share, if any. */
export function nameProblem(name: unknown): string | undefined {
  const expected =
    'expected the name of a bucket (3 to 63 lower case letters, digits, inner hyphens and dots, for example shop-images)'
  if (typeof name !== 'string') return `${expected}, got ${JSON.stringify(name)}`
  const got = `${expected}, got '${name}'`
  if (name.length < SHORTEST || name.length > LONGEST || !CHARACTERS.test(name)) return got
  if (/\.\.|\.-|-\./.test(name)) return `${got}: dots must be between letters or digits`
  if (IP_ADDRESS.test(name)) return `${got}: an IP address isn't allowed`
  const taken =
    TAKEN_BEGINNINGS.find((text) => name.startsWith(text)) ?? TAKEN_ENDINGS.find((text) => name.endsWith(text))
  return taken ? `${got}: '${taken}' is reserved` : undefined
}

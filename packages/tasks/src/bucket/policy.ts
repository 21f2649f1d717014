import type { BucketPolicy, PolicyStatement } from './documents.js'

const VERSION = '2012-10-17'
/** The actions that add data to a bucket: parts of multipart uploads need the same right. */
const WRITING = ['s3:PutObject']

const ofBucket = (bucket: string) => `arn:aws:s3:::${bucket}`
const ofObjects = (bucket: string) => `${ofBucket(bucket)}/*`

function noWrites(bucket: string, sid: string): PolicyStatement {
  return { Sid: sid, Effect: 'Deny', Principal: '*', Action: WRITING, Resource: ofObjects(bucket) }
}

/** The policy as the storage accepts it; undefined: no policy is needed. Over its quota a bucket can be read and emptied, not filled. */
export function policyText(bucket: string, policy: BucketPolicy, overQuota: boolean): string | undefined {
  const statements = statementsOf(bucket, policy)
  if (overQuota) statements.push(noWrites(bucket, 'PhaselockOverQuota'))
  return statements.length === 0 ? undefined : textOf(statements)
}

/** The policy of a bucket that is being deleted: no one may write to it any more. */
export const closedPolicyText = (bucket: string): string => textOf([noWrites(bucket, 'PhaselockDeleting')])

function statementsOf(bucket: string, policy: BucketPolicy): PolicyStatement[] {
  if (policy === 'private') return []
  if (policy === 'public-read') {
    const reads = { Effect: 'Allow', Principal: '*', Action: ['s3:GetObject'] } as const
    return [{ Sid: 'PhaselockPublicRead', ...reads, Resource: ofObjects(bucket) }]
  }
  return policy.map((statement) => ({ Resource: [ofBucket(bucket), ofObjects(bucket)], ...statement }))
}

const textOf = (statements: readonly PolicyStatement[]): string =>
  JSON.stringify({ Version: VERSION, Statement: statements })

import {
  CreateMultipartUploadCommand,
  DeleteBucketTaggingCommand,
  GetBucketPolicyCommand,
  GetBucketVersioningCommand,
  PutBucketTaggingCommand,
} from '@aws-sdk/client-s3'
import { expect, test } from '@jest/globals'
import { BUCKET_TAGS } from '../../../packages/tasks/src/bucket/index.js'
import { describeWithS3, FOR_TENANT, useWorld } from './world.js'

describeWithS3('a bucket', () => {
  const world = useWorld()

  test('is made, marked as its document’s, filled, changed, emptied and removed', async () => {
    world.replica({ pageSize: 10 })
    const id = await world.insert({ name: 'shop-images', versioning: true, quotaBytes: 1_000 })
    await world.untilPhase(id, 'Created')
    const { mark } = await world.document(id)
    expect(await world.tags('shop-images')).toEqual({
      [BUCKET_TAGS.mark]: mark,
      [BUCKET_TAGS.database]: world.database.db.databaseName,
      [BUCKET_TAGS.document]: id.toHexString(),
      [BUCKET_TAGS.fence]: expect.stringMatching(/^\d+$/),
    })
    expect(await world.history(id)).toEqual([
      '- again',
      'create again',
      'versioning again',
      'quota again',
      'policy moveTo Created',
    ])
    expect(await world.client.send(new GetBucketVersioningCommand({ Bucket: 'shop-images' }))).toMatchObject({
      Status: 'Enabled',
    })
    await world.fill('shop-images')
    expect(await world.anonymous('shop-images/folder-0/object-0')).toBe(403)

    await world.write(id, { policy: 'public-read', state: 'Updating' })
    await world.until(async () =>
      expect(await world.document(id)).toMatchObject({ state: 'Available', phase: 'Created' }),
    )
    expect(await world.anonymous('shop-images/folder-0/object-0')).toBe(200)
    expect(await world.anonymous('shop-images/mine', { method: 'PUT', body: 'x' })).toBe(403)
    expect(await world.document(id)).toMatchObject({ usage: { bytes: 20 + 5 * 5, versions: 30 }, overQuota: false })

    await world.write(id, { state: 'Deleted', keepFor: '1h' })
    await world.untilPhase(id, undefined)
    expect(await world.buckets()).not.toContain('shop-images')
  })

  test('is emptied one page a step', async () => {
    world.replica({ pageSize: 10, keepFor: '1h' })
    const id = await world.insert({ versioning: true })
    await world.untilPhase(id, 'Created')
    const { bucket } = await world.document(id)
    expect(bucket).toBe(id.toHexString())
    await world.fill(bucket)
    await world.write(id, { state: 'Deleted' })
    await world.untilPhase(id, 'Deleted')
    const steps = (await world.history(id)).join(', ')
    expect(steps).toMatch(/- again, uploads again, (objects again, ){3,}remove again, gone moveTo Deleted$/)
    expect(await world.document(id)).toMatchObject({ reserved: null })
    expect(await world.buckets()).toEqual([])
  })

  test('full: it can be read and emptied, not filled, until there is room again', async () => {
    const replica = world.replica({ pageSize: 10 })
    const id = await world.insert({ name: 'small', quotaBytes: 25, policy: [FOR_TENANT] })
    await world.untilPhase(id, 'Created')
    await world.fill('small', { objects: 30, versions: 0, markers: 0, uploads: 0 })
    // Ten minutes later.
    await world.write(id, { 'progress.since': new Date(0), lockedAt: new Date(1) })
    await world.until(async () => expect(await world.document(id)).toMatchObject({ overQuota: true, phase: 'Created' }))
    expect((await world.document(id))['usage']).toEqual({ bytes: 30, versions: 30 })
    const tenant = world.clientOf('tenant')
    await expect(world.put('small', 'one-more', 'x', tenant)).rejects.toMatchObject({ name: 'AccessDenied' })
    const upload = new CreateMultipartUploadCommand({ Bucket: 'small', Key: 'one-more' })
    await expect(tenant.send(upload)).rejects.toMatchObject({ name: 'AccessDenied' })
    await world.write(id, { quotaBytes: null, state: 'Updating' })
    await world.until(async () =>
      expect(await world.document(id)).toMatchObject({ overQuota: false, phase: 'Created' }),
    )
    await world.put('small', 'one-more', 'x', tenant)
    await world.write(id, { state: 'Deleted' })
    await world.untilPhase(id, undefined, [replica])
  })

  test('a quota of the storage’s own is set there instead', async () => {
    const limits: [string, number | undefined][] = []
    const quota = {
      async set({ bucket }: { bucket: string }, bytes: number | undefined) {
        limits.push([bucket, bytes])
      },
    }
    world.replica({ quota })
    const id = await world.insert({ name: 'limited', quotaBytes: 5 })
    await world.untilPhase(id, 'Created')
    await world.write(id, { quotaBytes: null, state: 'Updating' })
    await world.until(async () =>
      expect(await world.document(id)).toMatchObject({ state: 'Available', phase: 'Created' }),
    )
    expect(limits).toEqual([
      ['limited', 5],
      ['limited', undefined],
    ])
    await world.write(id, { state: 'Deleted' })
    await world.untilPhase(id, undefined)
  })

  test.each([
    ['A bucket', { name: 'A bucket' }],
    ["got 'ab'", { name: 'ab' }],
    ['an IP address', { name: '192.168.0.1' }],
    ['reserved', { name: 'xn--shop' }],
    ['quotaBytes: ', { name: 'legal', quotaBytes: -1 }],
    ['policy', { name: 'legal', policy: 'public-write' }],
  ])('is refused before anything is asked of the storage (%s)', async (reason, fields) => {
    world.replica({ storage: async () => Promise.reject(new Error('the storage was asked')) })
    const id = await world.insert(fields)
    expect(await world.untilParked(id)).toContain(reason)
  })

  test('a policy that the storage refuses parks, with the storage’s words; corrected, it goes on', async () => {
    world.replica()
    const statement = { Effect: 'Allow', Principal: '*', Action: 's3:FlyToTheMoon' }
    const id = await world.insert({ name: 'wrong-policy', policy: [statement] })
    expect(await world.untilParked(id)).toMatch(/s3:PutBucketPolicy on bucket wrong-policy .* MalformedPolicy/)
    await world.write(id, { policy: [{ ...statement, Action: 's3:GetObject' }], state: 'Updating' })
    await world.untilPhase(id, 'Created')
    const { Policy } = await world.client.send(new GetBucketPolicyCommand({ Bucket: 'wrong-policy' }))
    expect(JSON.parse(Policy!).Statement).toMatchObject([
      { Resource: ['arn:aws:s3:::wrong-policy', 'arn:aws:s3:::wrong-policy/*'] },
    ])
    await world.write(id, { name: 'renamed', state: 'Updating' })
    expect(await world.untilParked(id)).toContain("name and region can't be changed: this one is wrong-policy")
    await world.write(id, { name: 'wrong-policy', state: 'Updating' })
    await world.untilPhase(id, 'Created')
    await world.write(id, { state: 'Deleted' })
    await world.untilPhase(id, undefined)
    expect(await world.buckets()).not.toContain('wrong-policy')
  })

  test('tags of others stay', async () => {
    world.replica()
    const id = await world.insert({ name: 'tagged' })
    await world.untilPhase(id, 'Created')
    const TagSet = Object.entries({ ...(await world.tags('tagged')), team: 'blue' }).map(([Key, Value]) => ({
      Key,
      Value,
    }))
    await world.client.send(new PutBucketTaggingCommand({ Bucket: 'tagged', Tagging: { TagSet } }))
    await world.write(id, { state: 'Updating' })
    await world.until(async () =>
      expect(await world.document(id)).toMatchObject({ state: 'Available', phase: 'Created' }),
    )
    expect(await world.tags('tagged')).toMatchObject({ team: 'blue' })
  })
})

describeWithS3('a bucket of somebody else', () => {
  const world = useWorld()

  test.each([
    ['ours', 'ours'],
    ['others', 'ours'],
    ['ours', 'others'],
  ])('is neither used nor emptied (its account: %s, the replica’s: %s)', async (account, us) => {
    world.replica({ storage: world.clientOf(us) })
    const name = `foreign-${account}-${us}`
    await world.foreign(name, account)
    const id = await world.insert({ name })
    expect(await world.untilParked(id)).toMatch(/exists and (is not marked|belongs to another account)/)
    await world.write(id, { state: 'Deleted' })
    await world.untilPhase(id, undefined)
    const client = world.clientOf(account)
    await expect(world.tags(name, client)).rejects.toMatchObject({ name: 'NoSuchTagSet' })
    await world.put(name, 'still-there', 'x', client)
    // Corrected by its owner, the same document goes on.
    const other = await world.insert({ name })
    await world.untilParked(other)
    await world.write(other, { name: `${name}-2`, state: 'Updating' })
    await world.untilPhase(other, 'Created')
  })

  test('a bucket of another document: of this database, of another one, of one that was deleted by hand', async () => {
    world.replica()
    const first = await world.insert({ name: 'wanted' })
    await world.untilPhase(first, 'Created')
    const second = await world.insert({ name: 'wanted' })
    expect(await world.untilParked(second)).toBe(`bucket name wanted is reserved by Bucket ${first}: choose another`)
    await world.documents.deleteMany({})
    const third = await world.insert({ name: 'wanted' })
    expect(await world.untilParked(third)).toContain(`belongs to the document ${first} of the database t_`)
    // Whoever takes the marks away makes it nobody's: then it isn't touched either.
    await world.client.send(new DeleteBucketTaggingCommand({ Bucket: 'wanted' }))
    const fourth = await world.insert({ name: 'wanted' })
    expect(await world.untilParked(fourth)).toContain('is not marked as made by Phaselock')
  })

  test('its marks taken away: an updating one parks, a deleted one leaves it', async () => {
    world.replica()
    const id = await world.insert({ name: 'unmarked' })
    await world.untilPhase(id, 'Created')
    await world.put('unmarked', 'precious')
    await world.client.send(new DeleteBucketTaggingCommand({ Bucket: 'unmarked' }))
    await world.write(id, { state: 'Updating' })
    expect(await world.untilParked(id)).toBe('bucket unmarked is not marked as made by Phaselock')
    await world.write(id, { state: 'Deleted' })
    await world.untilPhase(id, undefined)
    expect(await world.versions('unmarked')).toBe(1)
  })
})

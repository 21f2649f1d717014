import { describe, expect, jest, test } from '@jest/globals'
import { idOf, ordersWith, packed, parcelsWith, useChildren } from '../phases/children-fixture.js'
import { useCliFolder } from './cli-process.js'

jest.setTimeout(240_000)

describe('show', () => {
  const { database, stored, insert, prepared } = useChildren()
  const folder = useCliFolder()
  const run = (...args: string[]) => folder().run(args, { MONGODB_URI: database.uri })

  test('says of a parent how its children are, the worst by name, and of a child whose it is', async () => {
    const { lifecycle } = ordersWith()
    const children = parcelsWith(async (doc, step) =>
      doc._id === idOf('stuck') ? step.park('no tape') : packed(doc, step),
    )
    const replica = await prepared([lifecycle, children])
    await insert(['left', 'stuck', 'right'])
    await replica.runOnce()
    expect(await stored()).toMatchObject({ phase: 'Shipping' })
    const { out } = await run('show', 'o')
    expect(out).toMatch(/^It has 3 children of parcel: 1 parked, 2 succeeded \(parked: parcel order\/o\/stuck\)\.$/m)
    expect((await run('show', 'o', '--json')).json()).toMatchObject({
      children: { worst: 'parked', byLifecycle: [{ lifecycle: 'parcel', total: 3, parked: 1, succeeded: 2 }] },
    })
    expect((await run('show', idOf('left'))).out).toMatch(
      /^It is the child 'left' of order o, which is in Shipping\.$/m,
    )
    expect((await run('check')).code).toBe(0)
  })
})

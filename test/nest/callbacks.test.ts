import { describe, expect, test } from '@jest/globals'
import { Injectable } from '@nestjs/common'
import { Test } from '@nestjs/testing'
import { type CallbackEvent, InvalidLifecycle, lifecycleOf, OwnerClient, Replica } from '../../src/index.js'
import { InvalidHandlers, PhaselockModule } from '../../src/nest/index.js'
import { useDatabase } from '../support/database.js'
import { keepingLogger } from './sample.js'

interface Parcel {
  _id: string
}
const parcel = lifecycleOf<Parcel>().define({
  name: 'parcel',
  collection: 'Parcel',
  phases: { Packing: { next: ['Packed'] }, Packed: { rest: true } },
  callbacks: ['onMoved', 'onRemoved'],
})

@Injectable()
class Packers {
  @parcel.OnPhase('Packing')
  async pack(_doc: typeof parcel.$doc, step: typeof parcel.$step.Packing) {
    return step.moveTo('Packed')
  }
}

@Injectable()
class Shop {
  readonly told: string[] = []

  @parcel.Callback('onMoved')
  async moved({ id, from, to }: CallbackEvent<Parcel, 'Packing' | 'Packed'>) {
    this.told.push(`${id} ${from}>${to}`)
  }

  @parcel.Callback('onRemoved')
  async removed({ id, from, by }: CallbackEvent<Parcel, 'Packing' | 'Packed'>) {
    this.told.push(`${id} removed from ${from} by ${by}`)
  }
}

describe('callbacks in a Nest app', () => {
  const database = useDatabase()
  const root = () => PhaselockModule.forRoot({ db: database.db, tick: false, logger: keepingLogger() })
  const appWith = async (providers: (new () => object)[]) => {
    const imports = [root(), PhaselockModule.forFeature([parcel])]
    return (await Test.createTestingModule({ imports, providers }).compile()).init()
  }

  test('are methods of its providers', async () => {
    const app = await appWith([Packers, Shop])
    await database.db.collection('Parcel').insertOne({ phase: 'Packing', _id: 'p' as never })
    const replica = app.get<Replica>(Replica)
    await replica.runOnce()
    await new OwnerClient<Parcel>(database.db, parcel.model).remove('p', { audit: { by: 'ana' } })
    await replica.runOnce()
    expect(app.get(Shop).told).toEqual(['p Packing>Packed', 'p removed from Packed by ana'])
    expect(await database.db.collection('Parcel').countDocuments()).toBe(0)
    await app.close()
  })

  test('one that is missing, there twice, or not declared is an error', async () => {
    const failure = (providers: (new () => object)[]) =>
      appWith(providers).then(
        () => new Error('expected it not to start'),
        (error: Error) => error,
      )
    const missing = await failure([Packers])
    expect(missing).toBeInstanceOf(InvalidHandlers)
    expect(missing.message).toContain("callback 'onMoved' is missing; add a method with @parcel.Callback('onMoved')")
    @Injectable()
    class Other extends Shop {}
    expect((await failure([Packers, Shop, Other])).message).toContain(
      "callback 'onMoved' is there twice, Shop.moved (RootTestModule) and Other.moved (RootTestModule)",
    )
    expect(() => parcel.Callback('onParked')).not.toThrow()
    expect(() => parcel.Callback('onParked')({}, 'x', {} as never)).toThrow(InvalidLifecycle)
  })
})

import { Injectable } from '@nestjs/common'
import { type BoundLifecycleOf, InjectLifecycle, PhaselockModule } from '../../src/nest/index.js'
import { gateway } from './gateway.js'

@Injectable()
export class Gateways {
  constructor(@InjectLifecycle(gateway) private readonly gateways: BoundLifecycleOf<typeof gateway>) {}

  async create(): Promise<void> {
    await this.gateways.insert({ _id: 'a', name: 'a', phase: 'Creating' })
    await this.gateways.setState('a', 'Deleted')
    // @ts-expect-error a field that the document has not
    await this.gateways.insert({ _id: 'a', name: 'a', nmae: 'a' })
    // @ts-expect-error an unknown phase
    await this.gateways.insert({ _id: 'a', name: 'a', phase: 'Craeting' })
  }
}

PhaselockModule.forFeature([gateway])
PhaselockModule.forRoot({ tick: false, grace: '5s', onParked: ({ id, reason }) => void [id, reason] })
PhaselockModule.forRootAsync({ inject: ['URI'], useFactory: (uri: string) => ({ uri }) })
PhaselockModule.forRootAsync({ useFactory: async () => ({ name: 'pod-1' }) })
// @ts-expect-error an unknown option
PhaselockModule.forRoot({ tik: false })
// @ts-expect-error grace has a unit
PhaselockModule.forRoot({ grace: 5 })
// @ts-expect-error not a lifecycle
PhaselockModule.forFeature([Gateways])
// @ts-expect-error an unknown option from a factory
PhaselockModule.forRootAsync({ useFactory: () => ({ tik: false }) })

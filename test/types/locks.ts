import { SchedulerLock } from '../../src/nest/index.js'

const config = { name: 'report', lockAtMostFor: '1m' }

export class Report {
  @SchedulerLock(config)
  async nothing(): Promise<void> {}

  @SchedulerLock(config)
  notAsync(): void {}

  @SchedulerLock(config)
  async perhaps(n: number): Promise<number | undefined> {
    return n
  }

  @SchedulerLock(config)
  async anything(): Promise<unknown> {
    return 1
  }

  // @ts-expect-error a skipped call has no number
  @SchedulerLock(config)
  async number(): Promise<number> {
    return 1
  }

  // @ts-expect-error a locked call has to wait for its lock
  @SchedulerLock(config)
  atOnce(): number {
    return 1
  }

  // @ts-expect-error a property is no method
  @SchedulerLock(config)
  field = 1

  // @ts-expect-error a lock has a name
  @SchedulerLock({ lockAtMostFor: '1m' })
  async nameless(): Promise<void> {}

  // @ts-expect-error an option that does not exist
  @SchedulerLock({ name: 'x', atMost: '1m' })
  async unknownOption(): Promise<void> {}
}

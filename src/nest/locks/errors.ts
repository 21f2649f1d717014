/** Methods with `@SchedulerLock`, or the options of locks, that can't be used; lists every problem. */
export class InvalidSchedulerLocks extends Error {
  override readonly name = 'InvalidSchedulerLocks'
  constructor(readonly problems: readonly string[]) {
    super(`the app's locks can't be used:\n${problems.map((problem) => `  - ${problem}`).join('\n')}`)
  }
}

/** A method with `@SchedulerLock` was called on an object of an app without locks: it isn't run without its lock. */
export class LocksNotConfigured extends Error {
  override readonly name = 'LocksNotConfigured'
  constructor(readonly where: string) {
    super(
      `expected locks in this app for ${where}, which has @SchedulerLock; import LocksModule.forRoot(...) or PhaselockModule.forRoot(...) in its root module ` +
        '(in a test, LocksModule.forRoot({ provider: memoryLocks() }) will do)',
    )
  }
}

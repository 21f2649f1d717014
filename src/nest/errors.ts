const list = (problems: readonly string[]) => problems.map((problem) => `  - ${problem}`).join('\n')

const OR_NO_TICK = 'or give PhaselockModule `tick: false` if this process should not work on documents'

/** Options of `PhaselockModule.forRoot` or `forRootAsync` that can't be used; lists every problem. */
export class InvalidModuleOptions extends Error {
  override readonly name = 'InvalidModuleOptions'
  constructor(
    /** For each problem: the option, the expected and the given value. */
    readonly problems: readonly string[],
  ) {
    super(`PhaselockModule's options can't be used:\n${list(problems)}`)
  }
}

/** Lifecycles and the methods that handle their phases don't fit together; lists every problem. */
export class InvalidHandlers extends Error {
  override readonly name = 'InvalidHandlers'
  constructor(
    /** For each problem: the lifecycle, phase or method, and the remedy. */
    readonly problems: readonly string[],
  ) {
    super(`Phaselock's lifecycles and their handlers don't fit together:\n${list(problems)}`)
  }
}

/** The tick is a cron job of the app's own ScheduleModule, and the app has no ScheduleModule that runs cron jobs. */
export class NoScheduler extends Error {
  override readonly name = 'NoScheduler'
  constructor(
    /** `missing`: the app doesn't import ScheduleModule; `crons are off`: it has `cronJobs: false`. */
    readonly why: 'missing' | 'crons are off',
  ) {
    const problem =
      why === 'missing'
        ? 'expected ScheduleModule in this app, but it is missing; add `ScheduleModule.forRoot()` (from @nestjs/schedule) to the imports of your root module, once in the whole app'
        : 'expected ScheduleModule to run cron jobs, but it was given `cronJobs: false`; remove that'
    super(`${problem}, ${OR_NO_TICK}`)
  }
}

/** Part of Phaselock was used without `PhaselockModule.forRoot` in the app. */
export class ModuleNotConfigured extends Error {
  override readonly name = 'ModuleNotConfigured'
  /** @param lifecycle the lifecycle that needs it; undefined: `by` does */
  constructor(
    readonly lifecycle?: string,
    by = "the test's kit",
  ) {
    const needs = lifecycle === undefined ? by : `lifecycle '${lifecycle}'`
    super(
      `expected PhaselockModule.forRoot() or forRootAsync() in this app, but it is missing; add it to the imports of your root module (${needs} needs it)`,
    )
  }
}

/** This app works on documents, and its methods have decorators for another Phaselock module, which it doesn't import. */
export class ModuleMissing extends Error {
  override readonly name = 'ModuleMissing'
  constructor(
    /** Its import as written in code, and the package that it comes from. */
    readonly module: string,
    /** The methods: `Class.method`. */
    readonly methods: readonly string[],
    decorator: string,
  ) {
    super(
      `expected ${module} in this app, but it is missing, and nothing else looks for ${decorator} (${methods.join(', ')}); add it to the imports of your root module, ${OR_NO_TICK}`,
    )
  }
}

/** A second `PhaselockModule.forRoot`: two replicas with the same lifecycles in one process. */
export class ModuleConfiguredTwice extends Error {
  override readonly name = 'ModuleConfiguredTwice'
  constructor(
    /** The module that was configured. */
    readonly module: 'PhaselockModule' | 'SchedulesModule',
    /** The number of configurations in the app: 2 or more. */
    readonly times: number,
  ) {
    const [ways, instead] = ONCE[module]
    super(
      `expected ${module}.${ways} once in this app, got it ${times} times; keep the one of your root module${instead}`,
    )
  }
}

/** The ways to configure each module, and the alternative for other modules. */
const ONCE = {
  PhaselockModule: ['forRoot() or forRootAsync()', ' and use PhaselockModule.forFeature([...]) elsewhere'],
  SchedulesModule: ['forRoot()', ': its Schedules can be injected everywhere'],
} as const

/** Methods with `@SchedulerLock`, or the options of locks, that can't be used; lists every problem. */
export class InvalidSchedulerLocks extends Error {
  override readonly name = 'InvalidSchedulerLocks'
  constructor(
    /** For each problem: the method (`Class.method`) or option, the expected and the given value. */
    readonly problems: readonly string[],
  ) {
    super(`the app's locks can't be used:\n${list(problems)}`)
  }
}

/** A method with `@SchedulerLock` was called on an object of an app without locks: it isn't run without its lock. */
export class LocksNotConfigured extends Error {
  override readonly name = 'LocksNotConfigured'
  constructor(
    /** The method that was called: `Class.method`. */
    readonly where: string,
  ) {
    super(
      `expected locks in this app for ${where}, which has @SchedulerLock; import LocksModule.forRoot(...) or PhaselockModule.forRoot(...) in its root module ` +
        '(in a test, LocksModule.forRoot({ provider: memoryLocks() }) will do)',
    )
  }
}

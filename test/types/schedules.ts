import { Scheduled, ScheduledTask } from '../../src/nest/schedules/index.js'
import { Schedules } from '../../src/schedules/index.js'

/** What a task gets is known from `context`. */
export const schedules = new Schedules({
  context: async () => ({ files: (repository: number) => [`${repository}.md`] }),
  tasks: {
    sync: async (args: { repository: number }, run) => {
      const files: string[] = run.context.files(args.repository)
      // @ts-expect-error the context has no such client
      run.context.gitlab
      run.count('filesProcessed', files.length)
    },
    tidyUp: { run: (_args, run) => run.log('tidy'), onFailure: (run, context) => context.files(run.attempt ?? 1) },
  },
})

void schedules.upsert('s', { task: 'sync', cron: '@daily', misfireGraceTime: null, interval: '5m' })
// @ts-expect-error a function can't be stored
void schedules.upsert('s', { task: () => 1, cron: '@daily' })
// @ts-expect-error arguments are JSON
void schedules.upsert('s', { task: 'sync', cron: '@daily', args: { since: new Date() } })
// @ts-expect-error a span has a unit, or is a number of seconds
void schedules.upsert('s', { task: 'sync', cron: '@daily', jitter: '5 minutes' })

export class Methods {
  @Scheduled({ cron: '@daily', args: { a: 1 } })
  daily(_args: { a: number }): void {}

  @ScheduledTask('weekly')
  async weekly(): Promise<void> {}

  // @ts-expect-error arguments are JSON
  @Scheduled({ cron: '@daily', args: { a: () => 1 } })
  wrong(): void {}
}

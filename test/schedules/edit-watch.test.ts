import { expect, test } from '@jest/globals'
import type { AlongsideContext } from '../../src/index.js'
import { keepWatch, startWatch } from '../../src/schedules/edit-watch.js'
import type { SchedulesSettings } from '../../src/schedules/options.js'
import { eventually, useDatabase } from '../support/database.js'
import { recordingLogger } from '../support/thing.js'

const database = useDatabase()

test('the document that notices edits is there again when somebody has removed it', async () => {
  const settings = { collections: { schedules: 'schedules', runs: 'runs' } } as SchedulesSettings
  const watch = database.db.collection<{ _id: string }>('schedules.watch')
  const logger = recordingLogger()
  const stop = new AbortController()
  await startWatch(database.db, settings)
  const work = keepWatch(settings, 10)({ db: database.db, logger, signal: stop.signal } as unknown as AlongsideContext)
  await watch.deleteOne({ _id: 'edits' })
  await eventually(async () => expect(await watch.findOne()).toMatchObject({ _id: 'edits', phase: 'Watching' }))
  await eventually(() => expect(logger.lines.map(({ message }) => message).join()).toContain('somebody has removed'))
  stop.abort()
  await work
})

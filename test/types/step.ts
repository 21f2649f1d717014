import { type Handler, lifecycleOf, Unavailable } from '../../src/phases/index.js'

interface Site {
  _id: string
  state?: 'Running' | 'Deleted'
  pages?: number
}

const site = lifecycleOf<Site>().define({
  name: 'site',
  collection: 'Site',
  phases: { Creating: { next: ['Created', 'Failed'] }, Created: { rest: true }, Failed: { final: true } },
})

// What the step gives
site.handle({
  async Creating(doc, step) {
    const name: string | undefined = step.name
    const fence: number = step.fence
    const left: number = step.leaseLeftMs()
    const since: Date | undefined = step.progress.since
    const errors: number | undefined = step.progress.attempts
    const outcomes = step.progress.history?.map((entry) => entry.outcome)
    step.signal.throwIfAborted()
    step.log.info('working', { name, fence, left, since, errors, outcomes, attempt: step.attempt })
    await step.checkpoint({ pages: 1 })
    if (step.attempt > 3) throw new Unavailable('down', { retryAfter: '30s' })
    if (step.name === 'pages') return step.moveTo('Failed')
    return doc.pages ? step.moveTo('Created') : step.again({ step: 'pages', set: { pages: 1 } })
  },
})

site.handle({
  async Creating(doc, step) {
    // @ts-expect-error the document is read-only: what changes goes into set
    doc.pages = 2
    // @ts-expect-error the fence is read-only
    step.fence = 1
    // @ts-expect-error progress is for reading
    step.progress.attempts = 0
    // @ts-expect-error leaseLeftMs is a method
    step.leaseLeftMs.toFixed()
    // @ts-expect-error a checkpoint stores the owner's fields only
    await step.checkpoint({ lockedAt: new Date() })
    // @ts-expect-error ... and of the right type
    await step.checkpoint({ pages: 'one' })
    // @ts-expect-error a wait has a reason
    step.wait()
    // @ts-expect-error a duration without unit
    step.wait('later', { for: 5 })
    // @ts-expect-error a step's name is a text
    step.again({ step: 2 })
    // @ts-expect-error the next step's name is an option
    step.again('pages')
    // @ts-expect-error a pause is an option
    step.wait('x', '5s')
    // @ts-expect-error unknown options
    step.again({ steps: 'pages' })
    // @ts-expect-error unknown options
    step.wait('x', { form: '5s' })
    // @ts-expect-error unknown options
    step.moveTo('Created', { sets: { pages: 1 } })
    // @ts-expect-error unknown options
    step.park('x', { for: '5s' })
    // @ts-expect-error the owner's state isn't the handler's to write
    step.park('broken', { set: { state: 'Deleted' } })
    // @ts-expect-error retryAfter has a unit
    new Unavailable('down', { retryAfter: '30' })
    return step.moveTo('Created')
  },
})

// @ts-expect-error a handler is asynchronous
site.handle({ Creating: (_doc, step) => step.moveTo('Created') })
// @ts-expect-error an outcome of its own making needs its fields
site.handle({ Creating: async () => ({ kind: 'wait' }) })

// A handler can be written elsewhere
const creating: Handler<'Created' | 'Failed', Site> = async (_doc, step) => step.moveTo('Failed')
const bound = site.handle({ Creating: creating })
// @ts-expect-error it may go where this phase may not
site.handle({ Creating: (async (_doc, step) => step.moveTo('Gone')) as Handler<'Gone', Site> })

// What its owner may do
void bound.insert({ _id: 'a', pages: 1 })
void bound.insert({ _id: 'a', phase: 'Creating' })
// @ts-expect-error an unknown phase
void bound.insert({ _id: 'a', phase: 'Crating' })
// @ts-expect-error a field that the document has not
void bound.insert({ _id: 'a', pagse: 1 })

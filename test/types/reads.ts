import { type BoundLifecycleOf, InjectLifecycle } from '../../src/nest/index.js'
import { type Handler, lifecycleOf, thread } from '../../src/phases/index.js'

interface Report {
  readonly _id: string
  state?: 'Wanted' | 'Deleted'
  title: string
  body: string
  layout: { size: number; colour: string }
  pages?: number
  createdAt: Date
}

const phases = { Rendering: { next: ['Rendered'] }, Rendered: { rest: true } } as const
const reports = lifecycleOf<Report>()
export const report = reports.define({ name: 'report', collection: 'Report', phases, reads: ['title', 'layout'] })

// What `reads` names, and what is always fetched: nothing else. No `as const`
type Seen = '_id' | 'state' | 'title' | 'layout' | 'createdAt'
type Same<A, B> = [A] extends [B] ? ([B] extends [A] ? true : never) : never
export const seen: Same<keyof typeof report.$doc, Seen> = true

report.handle({
  async Rendering(doc, step) {
    const named: [string, number] = [doc.title, doc.layout.size]
    const always: [string, Date, 'Wanted' | 'Deleted' | undefined] = [doc._id, doc.createdAt, doc.state]
    step.log.debug('seen', { named, always })
    // @ts-expect-error a field that isn't read
    doc.body.trim()
    // @ts-expect-error the same of an optional one
    if (doc.pages) return step.again()
    // @ts-expect-error still read-only
    doc.title = 'another'
    // What isn't read may be written
    await step.checkpoint({ body: 'text' })
    return step.moveTo('Rendered', { set: { pages: 3 } })
  },
})

// Handlers of their own
const narrow: Handler<'Rendered', Report, typeof report.$doc> = async (doc, step) => step.wait(doc.title)
const whole: Handler<'Rendered', Report> = async (doc, step) => step.wait(doc.body)
report.handle({ Rendering: narrow })
// @ts-expect-error it reads all of the document
report.handle({ Rendering: whole })

// In a thread
const module = new URL('./render.js', import.meta.url)
report.handle({ Rendering: thread<typeof narrow>(module) })
report.handle({ Rendering: thread(module) })
// @ts-expect-error it reads all of the document
report.handle({ Rendering: thread<typeof whole>(module) })

// Nest: methods, properties, and the owner, who sees everything
export class ReportHandlers {
  constructor(@InjectLifecycle(report) private readonly reports: BoundLifecycleOf<typeof report>) {}

  @report.OnPhase('Rendering')
  async rendering(doc: typeof report.$doc, step: typeof report.$step.Rendering) {
    const stored = await this.reports.find(doc._id)
    return stored?.body ? step.moveTo('Rendered') : step.wait(doc.title)
  }

  // @ts-expect-error it reads all of the document
  @report.OnPhase('Rendering')
  async reading(doc: Report, step: typeof report.$step.Rendering) {
    return step.wait(doc.body)
  }

  @report.OnPhase('Rendering')
  readonly inThread = thread<typeof narrow>(module)

  // @ts-expect-error it reads all of the document
  @report.OnPhase('Rendering')
  readonly wholeInThread = thread<typeof whole>(module)
}

// Names that the document doesn't have
const about = { name: 'report', collection: 'Report', phases } as const
reports.define({
  ...about,
  reads: [
    'title',
    // @ts-expect-error a typo
    'boddy',
  ],
})
// @ts-expect-error only whole fields: an outcome's `set` replaces a field, and would lose what of it was not read
reports.define({ ...about, reads: ['layout.size'] })
// @ts-expect-error a list
reports.define({ ...about, reads: 'title' })

// Nothing beside what is always fetched; and without `reads` all of it
const bare = reports.define({ ...about, reads: [] })
export const nothing: Same<keyof typeof bare.$doc, '_id' | 'state' | 'createdAt'> = true
const all = reports.define(about)
export const everything: Same<typeof all.$doc, Report> = true
all.handle({ Rendering: whole })

// Perhaps: what is certain
declare const isBig: boolean
const perhaps = reports.define({ ...about, reads: isBig ? ['title'] : undefined })
perhaps.handle({
  async Rendering(doc, step) {
    // @ts-expect-error it may not be read
    doc.body.trim()
    return step.wait(doc.title)
  },
})

// A document of several shapes is narrowed in each
type Part = { _id: string; kind: 'text'; text: string; notes: string } | { _id: string; kind: 'image'; url: string }
const part = lifecycleOf<Part>().define({ ...about, reads: ['kind', 'text', 'url'] })
part.handle({
  async Rendering(doc, step) {
    if (doc.kind === 'image') return step.wait(doc.url)
    // @ts-expect-error a field that isn't read
    doc.notes.trim()
    return step.wait(doc.text)
  },
})

// A document of any fields has those that are named
const loose = lifecycleOf<Record<string, unknown>>().define({ ...about, reads: ['anything'] })
loose.handle({
  async Rendering(doc, step) {
    // @ts-expect-error a field that isn't read
    step.log.info('other', { other: doc.other })
    return step.wait(String(doc.anything))
  },
})

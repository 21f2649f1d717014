import { lifecycleOf, thread } from '../../src/phases/index.js'

export interface Film {
  _id: string
  frames?: number
}

export const film = lifecycleOf<Film>().define({
  name: 'film',
  collection: 'Film',
  phases: { Rendering: { next: ['Rendered', 'Failed'] }, Rendered: { rest: true }, Failed: { rest: true } },
})
const module = new URL('./render.js', import.meta.url)

// With its module's type a handler in a thread is checked against the phase, whichever export it is
film.handle({ Rendering: thread<typeof import('./render.js').default>(module) })
film.handle({ Rendering: thread<typeof import('./render.js').check>(module, { export: 'check' }) })
// Without it fits every phase, and is checked at run time
film.handle({ Rendering: thread(module, { terminateAfter: '2s' }) })
// @ts-expect-error it may go where this phase may not
film.handle({ Rendering: thread<typeof import('./render.js').elsewhere>(module) })
// @ts-expect-error a closure can't go to another thread
film.handle({ Rendering: thread(async () => undefined) })
// @ts-expect-error an option that it doesn't have
thread(module, { exports: 'check' })
// @ts-expect-error a duration without unit
thread(module, { terminateAfter: 500 })

// Nest: a property holds it
export class Films {
  @film.OnPhase('Rendering')
  readonly rendering = thread<typeof import('./render.js').default>(module)
}

export class WrongFilms {
  // @ts-expect-error it may go where this phase may not
  @film.OnPhase('Rendering')
  readonly rendering = thread<typeof import('./render.js').elsewhere>(module)
}

export class NoHandler {
  // @ts-expect-error not a handler
  @film.OnPhase('Rendering')
  readonly rendering = 5
}

import { lifecycleOf } from '../dist/index.js'

/** Ten lifecycles as an application might have them: five phases each, two state rules, a deadline. */
export const TEN = Array.from({ length: 10 }, (_, i) => {
  const collection = `Kind${i}`
  const lifecycle = lifecycleOf()
    .define({
      name: `kind-${i}`,
      collection,
      phases: {
        Creating: { next: ['Ready'] },
        Ready: { rest: true },
        Stopping: { next: ['Stopped'], deadline: { after: '10m', moveTo: 'Stopped' } },
        Stopped: { rest: true },
        Deleting: { next: ['Deleted'] },
        Deleted: { final: true },
      },
      rules: [
        { when: 'Stopped', from: ['Ready'], moveTo: 'Stopping' },
        { when: 'Deleted', from: ['Ready', 'Stopped'], moveTo: 'Deleting' },
      ],
    })
    .handle({
      Creating: async (_doc, step) => step.moveTo('Ready'),
      Stopping: async (_doc, step) => step.moveTo('Stopped'),
      Deleting: async (_doc, step) => step.moveTo('Deleted'),
    })
  return { collection, lifecycle }
})

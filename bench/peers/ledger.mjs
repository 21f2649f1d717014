/** The steps of a document in the workload `steps`; a no-op job has one. */
export const STEPS = { noop: 1, hang: 1, steps: 6 }

/**
 * Counts what a worker ran, in its memory: each step of each job once, or it was lost or repeated.
 * @param kind `noop` does nothing, `steps` asks for the next step five times, `hang` never ends
 * @param jobs how many there are, with the ids 0 to jobs - 1
 */
export function newLedger(kind, jobs) {
  const steps = STEPS[kind]
  const runs = new Uint8Array(jobs * steps)
  const latencies = []
  let distinct = 0
  let repeated = 0
  let complete
  const completed = new Promise((resolve) => {
    complete = resolve
  })
  return {
    completed,
    latencies,
    /** A job is `{ id, step?, sentMs? }`; returns the next one, if there is one. */
    visit(job, nowMs) {
      const step = job.step ?? 1
      const place = job.id * steps + step - 1
      if (runs[place] > 0) repeated += 1
      else distinct += 1
      runs[place] = Math.min(255, runs[place] + 1)
      if (job.sentMs !== undefined) latencies.push(nowMs - job.sentMs)
      if (distinct === runs.length) complete()
      return step < steps ? { id: job.id, step: step + 1 } : undefined
    },
    /** Steps that ran, that never did, and runs beyond the first. */
    counts: () => ({ ran: distinct, missing: runs.length - distinct, repeated }),
  }
}

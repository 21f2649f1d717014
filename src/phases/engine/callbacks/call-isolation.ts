/** The longest time that a suspect's call keeps other suspects waiting. One that hasn't ended its process within this time hangs. */
export const SUSPECT_MOST_MS = 1_500

/**
 * The suspects in hand, of all lifecycles of a replica: documents whose outbox a process took before and never let go of. Their call may have ended
 * that process, and so made suspects of everything else that it had in hand.
 *
 * No more of them are called at the same time than each one allows: `concurrency` on its second try, then a quarter of that with each further one,
 * at least one. On its last try a document is called alone: no other suspect is in hand, and nothing else begins before its call has ended. Both
 * hold for 1.5 s at most. So only a call that ends its process again and again is given up.
 */
export class CallIsolation {
  inProgress = 0
  /** Set while a suspect is alone; resolves when it no longer is. */
  alone: Promise<void> | undefined

  /** Isolates a suspect until the returned function is called, for `SUSPECT_MOST_MS` at most. */
  isolate(): () => void {
    const { promise, resolve } = Promise.withResolvers<void>()
    const end = () => {
      clearTimeout(timer)
      if (this.alone === promise) this.alone = undefined
      resolve()
    }
    const timer = setTimeout(end, SUSPECT_MOST_MS).unref()
    this.alone = promise
    return end
  }
}

/** A call that hasn't ended its process after this long no longer keeps other suspects waiting: it hangs. */
export const SUSPECT_MOST_MS = 1_500

/**
 * Documents in hand, of all lifecycles of a replica, whose outbox somebody took before and never let go of: the call may have ended that process, and so
 * made suspects of everything else that it had in hand. As many are called at once as each of them allows: on its second try `concurrency`, then a quarter
 * of that with each further one, at least one. On its last try a document is called alone: no other suspect is in hand, and nothing else
 * begins before its call has ended. Both for 1.5 s at most. So only what ends its process again and again is given up.
 */
export class Suspects {
  inHand = 0
  /** Set while one is alone. */
  alone: Promise<void> | undefined

  /** Until `end` is called, and not for long. */
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

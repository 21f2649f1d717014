import type { BoundLifecycle, Lifecycle } from '../phases/index.js'

/** What `@InjectLifecycle(gateway)` gives: `BoundLifecycleOf<typeof gateway>`. */
export type BoundLifecycleOf<L> =
  L extends Lifecycle<infer Doc, infer G, infer _Read> ? BoundLifecycle<Doc, G> : BoundLifecycle

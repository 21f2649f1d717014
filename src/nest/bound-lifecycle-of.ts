import type { BoundLifecycle, Lifecycle } from '../phases/index.js'

/** What `@InjectLifecycle(gateway)` gives: `BoundLifecycleOf<typeof gateway>`. */
export type BoundLifecycleOf<L> = L extends Lifecycle<infer Doc, infer G> ? BoundLifecycle<Doc, G> : BoundLifecycle

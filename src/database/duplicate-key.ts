const DUPLICATE_KEY = 11000

/** Whether the server refused a write, or one of a bulk, as a unique index has such a key already. By its code: an app may bring another copy of the driver. */
export const isDuplicateKey = (error: unknown): boolean =>
  (error as { readonly code?: unknown } | null | undefined)?.code === DUPLICATE_KEY

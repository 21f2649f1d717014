/** Questions in other words than the code's, each with the file that answers it. */
export const QUERIES: readonly { readonly question: string; readonly path: string }[] = [
  {
    question: 'emit a value only after a quiet time without another emission',
    path: 'rxjs/src/internal/operators/debounceTime.ts',
  },
  {
    question: 'subscribe again when the source fails, a limited number of times',
    path: 'rxjs/src/internal/operators/retry.ts',
  },
  {
    question: 'choose a server of the replica set by read preference and latency',
    path: 'mongodb/src/sdam/server_selection.ts',
  },
  { question: 'pool of connections with a wait queue and a maximum size', path: 'mongodb/src/cmap/connection_pool.ts' },
  { question: 'watch a collection for changes and resume after an error', path: 'mongodb/src/change_stream.ts' },
  { question: 'store large files in GridFS buckets', path: 'mongodb/src/gridfs/index.ts' },
  { question: 'authenticate with SCRAM, salted password and nonce', path: 'mongodb/src/cmap/auth/scram.ts' },
  { question: 'turn a singular English word into its plural', path: 'mongoose/lib/helpers/pluralize.js' },
  { question: 'iterate over all Redis keys with SCAN as a readable stream', path: 'ioredis/built/ScanStream.js' },
  { question: 'group emitted values by a key into observables', path: 'rxjs/src/internal/operators/groupBy.ts' },
]

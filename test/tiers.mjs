/**
 * Two tiers of tests. `npm test` runs the core and the features on the real MongoDB engine, with nothing but Node: what a contributor
 * runs all day, about 2 min 35 s on two cores. `npm run test:system` runs the rest: what needs other servers or tools (Go, Java,
 * PostgreSQL, Redis), starts processes, or takes long. CI runs both and fails where a test was skipped.
 *
 * A new test belongs to the first tier unless it needs one of those; `test/architecture/tiers.test.ts` follows its imports.
 */
const SYSTEM = [
  // Kubernetes API servers, S3 servers and manifests, built with Go.
  'kubernetes/**',
  'tasks/**',
  'deploy/**',
  // Named locks on PostgreSQL, MySQL, Redis and beside Java; the servers themselves.
  'state/store/{conformance-redis,mongodb-away,processes,redis-server}.test.ts',
  'locks/{conformance,critical-sections,interop,lost-answer-servers,postgres-rights,processes,redis-keys,server-down,redis-quorum,redis-quorum-drift,mysql}.test.ts',
  'tools/**',
  // Programs that look for their own package.json.
  'config/app-version.test.ts',
  // A database that is away for seconds.
  'state/logins-away.test.ts',
  // Processes that are killed every thousand rows.
  'state/rows-kills.test.ts',
  // Programs as users run them: the command line, demos, workers, replicas in processes of their own, examples, benchmarks.
  'cli/**',
  'chaos/**',
  'examples/**',
  'bench/**',
  'schedules/three-processes.test.ts',
  'phases/versions-lock-timeout.test.ts',
  // Replicas whose processes are killed by their handlers, and thousands of documents that refuse writes.
  'phases/{children-processes,limits-processes,limits-replicas,limits-turns,many-refusals,poison-isolation}.test.ts',
  // Repositories that git reads, and servers in front of it.
  'repositories/git/**',
  'repositories/sync/{sync,late,one-writer,model,faults}.test.ts',
  // A Nest app whose replica works by itself.
  'repositories/nest.test.ts',
  // Documents of up to 16 MiB, thousands of them, or hundreds in a race.
  '{lock,phases}/large-documents.test.ts',
  'lock/{claim-race,end-retries,explain,order}.test.ts',
  'phases/{bad-documents-refusals,partition-limits,legacy-race,waiting-cost}.test.ts',
  'operations/{bulk,bulk-changes,bulk-undo-order}.test.ts',
  'schedules/{backfill,clock-back,clock-forward,edits,many,not-kept,pauses-of-several,races,runs,runs-locked}.test.ts',
  'schedules/{starts,starts-children,starts-faults}.test.ts',
  // What takes seconds of processor time, because it goes through every fault, or waits for real seconds.
  'phases/{bad-handlers-poison,children-faults,children-refused,duties,endless,flows,hostile-ends,ids,log-bounds,long-steps,own-bugs,selection-pairs}.test.ts',
  'operations/{asked-wrongly,check,removed}.test.ts',
  'operations/causes/{causes,faults}.test.ts',
  'lock/read-back.test.ts',
  'nest/{app-kit,mongoose,questions-http}.test.ts',
  // The same: threads that compute, thousands of hanging calls, every odd document, apps started again and again.
  'phases/{threads,callbacks-hanging,bad-handlers,bad-documents,unreadable-documents,limits-damaged,broken-lock-timeout,sharing,two-copies}.test.ts',
  'lock/{limits,elections-elected}.test.ts',
  'database/bson-options.test.ts',
  'nest/started-again.test.ts',
  'telemetry/schedule-metrics.test.ts',
  'testing/lifecycle-kit.test.ts',
  // A database that is killed, cut off or downloaded.
  'faults/**',
  // A replica set of real `mongod`s.
  'replica-set/**',
  // A sharded cluster of real `mongod`s behind `mongos`.
  'sharded/**',
  // Vector stores and an embedder: wheels of Python's index, PostgreSQL in WebAssembly.
  'repositories/{vectors/{qdrant,pgvector}*,embeddings/wordllama}.test.ts',
  'local-database/{local-engine,glibc,sources}.test.ts',
  'database/local-database.test.ts',
  // What computes for long: the explorer of the protocol's states, generated documents, random crashes, the whole import graph, pages whose code is compiled and run.
  'model/**',
  '{phases,schedules}/*-{crashes,property}.test.ts',
  'phases/{blast-radius,claim-order,storable}.test.ts',
  'lock/{work-split-bound,reordered-ids}.test.ts',
  'architecture/layers.test.ts',
  'docs/{moving-from-cron,operations-queries,reference,testing-guide}.test.ts',
  // What is published: the package, its types in other projects, apps of its users (installed from npm's registry).
  'types/**',
  'afternoon/**',
  'architecture/package.test.ts',
  'packages/**',
]

/** Jest's `testMatch` for the tests of `npm run test:system`. */
export const systemTests = SYSTEM.map((glob) => `**/test/${glob.replace(/\*\*$/, '**/*.test.ts')}`)

/** And for those of `npm test`. */
export const coreTests = ['**/test/**/*.test.ts', ...systemTests.map((glob) => `!${glob}`)]

/**
 * Tests of the first tier that give the server another clock (`TcpProxy.stepClock`), which only the embedded engine takes from a client:
 * test/released.mjs leaves them out.
 */
export const engineTests = [
  'lock/key-slots.test.ts',
  'lock/limit-pauses-clock.test.ts',
  'lock/limit-rates-clock.test.ts',
  'operations/flow-beats.test.ts',
  'phases/callbacks-clock.test.ts',
  'phases/clock-steps.test.ts',
  'phases/idle.test.ts',
  'phases/replica-documents.test.ts',
  'phases/undated.test.ts',
  'support/tcp-proxy.test.ts',
]

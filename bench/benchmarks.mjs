/**
 * The benchmarks by name. Each module exports `run(server, options)`, which resolves to its figures: an object with the
 * fields that README.md explains, and `wrong`, the documents (or whatever it checks) that were not what they should be.
 * `server` is what server.mjs gives (`uri` of a MongoDB engine of the benchmark's own, `database()` for an empty one);
 * `options` are `quick`, `progress(line)` for people, and those of `takes` that the caller gave.
 *
 * @type {Readonly<Record<string, { about: string, module: string, takes: readonly string[], server?: false }>>}
 */
export const BENCHMARKS = {
  floor: {
    about: 'what a program written by hand for just this gets out of the server: six steps a document, and one',
    module: './floor.mjs',
    takes: ['documents', 'rounds'],
  },
  steps: {
    about: 'six recorded steps a document, with and without data, beside the floor',
    module: './steps.mjs',
    takes: ['documents', 'rounds'],
  },
  noop: {
    about: 'documents that do nothing, from insert to done, beside the floor',
    module: './noop.mjs',
    takes: ['documents', 'rounds'],
  },
  latency: {
    about: 'pick-up by doorbell and by tick, idle and under load; wake-ups under overload; recording',
    module: './latency.mjs',
    takes: [],
  },
  idle: { about: 'commands a second and memory of replicas that have nothing to do', module: './idle.mjs', takes: [] },
  backlog: {
    about: 'what a claim and a tick cost beside 1,000, 100,000 and 1,000,000 documents',
    module: './backlog.mjs',
    takes: [],
  },
  replicas: {
    about: '1, 2 and 4 replicas on one server: throughput, candidates lost to each other',
    module: './replicas.mjs',
    takes: ['documents', 'rounds'],
  },
  recovery: { about: 'kill -9, SIGTERM, and a pause beyond the lease', module: './recovery.mjs', takes: [] },
  memory: {
    about: 'resident memory idle and loaded, and whether the heap grows under load',
    module: './memory.mjs',
    takes: ['minutes'],
  },
  soak: {
    about: 'chaos with a random fault every second: is anything lost, repeated or stuck?',
    module: './soak.mjs',
    takes: ['minutes'],
    server: false,
  },
  limits: {
    about:
      'documents a second without a limit, with ample slots, with few by one and two replicas, beside a counter by hand',
    module: './limits.mjs',
    takes: ['documents', 'rounds'],
  },
  fairness: {
    about:
      "how long a tenant's documents take behind 100,000 of another, in turns, by rank and by age; what an order costs",
    module: './fairness.mjs',
    takes: ['documents', 'rounds'],
  },
  operations: {
    about: 'an operation on many documents: how many it wakes and redoes in a second, beside as many single updates',
    module: './operations.mjs',
    takes: ['documents', 'rounds'],
  },
  events: {
    about: 'what it costs to keep events, sampled and full, and to tell a callback',
    module: './events.mjs',
    takes: ['documents', 'rounds'],
  },
  schedules: {
    about: 'a million schedules: idle ticks, how late due ones start, runs a second under their locks',
    module: './schedules.mjs',
    takes: [],
  },
  peers: {
    about: 'Agenda, BullMQ, pg-boss and graphile-worker beside Phaselock, on real servers',
    module: './peers/run.mjs',
    takes: ['rounds'],
  },
  claims: {
    about: 'claim, work, release by Phaselock, PostgreSQL in two ways and a Redis lock; what a crash costs each',
    module: './claims/run.mjs',
    takes: ['documents', 'rounds'],
    server: false,
  },
  kubernetes: {
    about: "from a certificate's Ready to the domain's Created, with watches and without, on a real API server",
    module: './kubernetes.mjs',
    takes: [],
  },
  locks: {
    about:
      'named locks: acquire and release in a second by each provider, beside a hand-written floor; a fight for few',
    module: './locks.mjs',
    takes: ['rounds'],
  },
  state: {
    about: 'values that all replicas share: reads and writes in a second in MongoDB and Redis, beside the plain driver',
    module: './state.mjs',
    takes: ['rounds'],
  },
  looking: {
    about: 'what looking costs beside 300,000 documents: a status, a scrape, a census; steps beside 20 readers',
    module: './looking.mjs',
    takes: ['documents', 'rounds'],
  },
  sync: {
    about: 'a repository of 10,000 files that is in sync, a first sync, and the memory of indexing 100,000 files',
    module: './sync.mjs',
    takes: ['rounds'],
  },
}

import { expect, test } from '@jest/globals'
import { Audit, Events, flowOf, Limits, lifecycleOf, Unavailable } from '../../src/index.js'
import { Regions } from '../../src/kubernetes/index.js'
import { memoryLocks } from '../../src/locks/index.js'
import { getLifecycleToken, InjectLifecycle } from '../../src/nest/index.js'
import { operationLifecycle } from '../../src/operations/public.js'
import { Schedules, starts } from '../../src/schedules/index.js'
import { apiGatewayLifecycles, bindLifecycle, runtimeDomainLifecycles } from '../../src/tasks/index.js'
import { lockMetrics } from '../../src/telemetry/index.js'
import { backDate, race } from '../../src/testing/index.js'

const thing = lifecycleOf<{ _id: string }>().define({
  name: 'thing',
  collection: 'Thing',
  phases: { Creating: { next: ['Created'] }, Created: { rest: true } },
})
const bound = () => thing.handle({ Creating: async (_doc, step) => step.moveTo('Created') })
const NO_DB = "db: expected a database from the driver (client.db('shop')), got undefined"

/** As JavaScript, or TypeScript with a cast, calls them. */
const CALLS: readonly (readonly [string, (given: never) => unknown, unknown, string | RegExp])[] = [
  ['race', race, undefined, 'race: expected an object, got undefined'],
  ['race', race, {}, /outside: expected a function that makes the outside world.*lifecycle: .*document: expected/],
  [
    'race',
    race,
    { outside: () => ({}), lifecycle: bound, documnet: {} },
    "unknown option 'documnet' (did you mean 'document'?)",
  ],
  [
    'race',
    race,
    { outside: () => ({}), lifecycle: bound, document: {}, maxPoints: '5' },
    'maxPoints: expected a whole number',
  ],
  ['Regions', (given) => new Regions(given), undefined, 'new Regions: expected an object, got undefined'],
  ['Regions', (given) => new Regions(given), {}, NO_DB],
  [
    'Regions',
    (given) => new Regions(given),
    { db: { collection() {} }, refresh: '2' },
    /refresh: expected a duration.*'2'/,
  ],
  ['bindLifecycle', (given) => bindLifecycle(bound(), given), undefined, NO_DB],
  [
    'bindLifecycle',
    (given) => bindLifecycle(bound(), given),
    { db: { collection() {} }, wrap: 5 },
    'wrap: expected a function, got 5',
  ],
  ['apiGatewayLifecycles', apiGatewayLifecycles, undefined, 'apiGatewayLifecycles: expected an object, got undefined'],
  ['apiGatewayLifecycles', apiGatewayLifecycles, { baseDomain: 'example.org' }, NO_DB],
  ['runtimeDomainLifecycles', runtimeDomainLifecycles, {}, NO_DB],
  ['operationLifecycle', operationLifecycle, undefined, 'operationLifecycle: expected an object, got undefined'],
  ['operationLifecycle', operationLifecycle, {}, NO_DB],
  [
    'backDate',
    (given) => backDate(given, 5),
    undefined,
    "collection: expected a collection of the driver (db.collection('Order'))",
  ],
  [
    'backDate',
    (given) => backDate({ updateMany() {} } as never, given),
    '5m',
    "backDate: ms: expected a number, got '5m'",
  ],
  ['memoryLocks', memoryLocks, { name: 'api' }, 'name: expected a string, got an object with name'],
  ['lockMetrics', lockMetrics, null, 'lockMetrics: expected an object, got null'],
  ['lockMetrics', lockMetrics, { names: 'nightly' }, "names: expected a list of locks' names"],
  [
    'getLifecycleToken',
    getLifecycleToken,
    undefined,
    'expected a lifecycle, got undefined; if its file imports this one',
  ],
  ['InjectLifecycle', InjectLifecycle, undefined, 'move the definition to a file of its own'],
  [
    'Unavailable',
    (given) => new Unavailable('down', given),
    { retryAfter: 'soon' },
    'retryAfter: expected a duration such as',
  ],
  ['Unavailable', (given) => new Unavailable('down', given), null, 'new Unavailable: expected an object, got null'],
  [
    'Unavailable',
    (given) => new Unavailable('down', given),
    { retryAfterMs: 5_000 },
    "unknown option 'retryAfterMs' (did you mean 'retryAfter'?); known: retryAfter, cause",
  ],
  ['Unavailable', (given) => new Unavailable('down', given), new Error('503'), 'give it as { cause: error }'],
  ['Schedules', (given) => new Schedules(given), null, 'new Schedules: expected an object, got null'],
  ['Limits', (given) => new Limits(given), {}, "(client.db('shop')), got an object with nothing"],
  ['Audit', (given) => new Audit(given), undefined, NO_DB],
  ['Events', (given) => new Events(given), 'shop', "client.db('shop')), got 'shop'"],
  ['flowOf', (given) => flowOf().define(given), undefined, 'expected an object with name, collection, tasks'],
  ['starts', (given) => starts(given, async () => ({}) as never), undefined, 'expected a lifecycle'],
]

test.each(CALLS.map(([name, call, given, told], at) => [at, name, call, given, told] as const))(
  '%d: %s says what it expected',
  async (_at, _name, call, given, told) => {
    const error = await Promise.resolve()
      .then(() => call(given as never))
      .then(
        () => undefined,
        (thrown: Error) => thrown,
      )
    expect(error?.name).toMatch(/^Invalid/)
    expect(error?.message).toEqual(
      typeof told === 'string' ? expect.stringContaining(told) : expect.stringMatching(told),
    )
  },
)

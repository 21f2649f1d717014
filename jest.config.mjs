import { availableParallelism } from 'node:os'
import { coreTests } from './test/tiers.mjs'

/**
 * `npm test`; `npm run test:system` has jest.system.config.mjs, and test/tiers.mjs says which tests are which.
 *
 * Jest 30 runs the TypeScript sources as ES modules through swc, with the decorator metadata that Nest needs.
 */
export default {
  testEnvironment: '<rootDir>/test/support/environment.mjs',
  roots: ['<rootDir>/test'],
  testMatch: coreTests,
  extensionsToTreatAsEsm: ['.ts'],
  moduleNameMapper: {
    '^(\\.{1,2}/.*)\\.js$': '$1',
    '^phaselock-(local-database|tasks|state|repositories)$': '<rootDir>/packages/$1/src/index.ts',
    '^phaselock-state/([a-z]+)$': '<rootDir>/packages/state/src/$1/index.ts',
    '^phaselock$': '<rootDir>/src/index.ts',
    '^phaselock/([a-z-]+)$': '<rootDir>/src/$1/index.ts',
  },
  transform: {
    '^.+\\.ts$': [
      '@swc/jest',
      {
        jsc: {
          parser: { syntax: 'typescript', decorators: true },
          transform: { legacyDecorator: true, decoratorMetadata: true },
          target: 'es2023',
        },
        module: { type: 'es6' },
        sourceMaps: 'inline',
      },
    ],
  },
  // Only for what hangs: a machine that is ten times slower for a while must pass.
  testTimeout: 120_000,
  // Most tests wait for the database, a pause or another replica half of their time: five times as many as the cores of a small
  // machine keep these busy.
  maxWorkers: Math.max(10, availableParallelism()),
  globals: { databaseInMemory: true },
  globalSetup: '<rootDir>/test/support/global-setup.ts',
  globalTeardown: '<rootDir>/test/support/global-teardown.ts',
}

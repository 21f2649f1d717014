/** swc, ES modules: NODE_OPTIONS=--experimental-vm-modules npx jest */
module.exports = {
  testEnvironment: 'node',
  testTimeout: 60_000, // each kit starts a database, unless MONGODB_URI names one
  testMatch: ['<rootDir>/src/**/*.e2e-spec.ts'],
  moduleNameMapper: { '^(\\.{1,2}/.*)\\.js$': '$1' },
  extensionsToTreatAsEsm: ['.ts'],
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
      },
    ],
  },
}

/** ts-jest, ES modules: NODE_OPTIONS=--experimental-vm-modules npx jest */
module.exports = {
  testEnvironment: 'node',
  testTimeout: 60_000, // each kit starts a database, unless MONGODB_URI names one
  testMatch: ['<rootDir>/src/**/*.e2e-spec.ts'],
  moduleNameMapper: { '^(\\.{1,2}/.*)\\.js$': '$1' },
  extensionsToTreatAsEsm: ['.ts'],
  transform: {
    '^.+\\.ts$': [
      'ts-jest',
      {
        useESM: true,
        tsconfig: {
          module: 'es2022',
          moduleResolution: 'bundler',
          target: 'es2023',
          strict: true,
          isolatedModules: true, // types are checked by tsc
          experimentalDecorators: true,
          emitDecoratorMetadata: true,
        },
      },
    ],
  },
}

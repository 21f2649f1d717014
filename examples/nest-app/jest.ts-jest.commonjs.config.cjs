/** ts-jest, CommonJS: NODE_OPTIONS=--experimental-vm-modules npx jest, on Node 24.9 or later */
module.exports = {
  testEnvironment: 'node',
  testTimeout: 60_000, // each kit starts a database, unless MONGODB_URI names one
  testMatch: ['<rootDir>/src/**/*.e2e-spec.ts'],
  moduleNameMapper: { '^(\\.{1,2}/.*)\\.js$': '$1' },
  transform: {
    '^.+\\.ts$': [
      'ts-jest',
      {
        tsconfig: {
          module: 'commonjs',
          target: 'es2023',
          esModuleInterop: true,
          strict: true,
          isolatedModules: true, // types are checked by tsc
          experimentalDecorators: true,
          emitDecoratorMetadata: true,
        },
      },
    ],
  },
}

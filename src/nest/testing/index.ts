/**
 * For tests of a Nest app: its lifecycles with its own providers, on a database of the test's own.
 * Needs `npm install --save-dev @nestjs/testing`, beside the app's own Nest.
 *
 * @example
 * ```ts
 * import { Module } from '@nestjs/common'
 * import { PhaselockModule } from 'phaselock/nest'
 * import { AppKit, type AppBuilder } from 'phaselock/testing/nest'
 *
 * @Module({ imports: [PhaselockModule.forRoot()] })
 * class AppModule {}
 *
 * // Test of '@nestjs/testing', with the providers that the test replaces
 * declare const Test: { createTestingModule(metadata: object): AppBuilder<never> }
 *
 * const kit = await AppKit.start(Test.createTestingModule({ imports: [AppModule] }))
 * await kit.insert('mailbox', { _id: 'ann', phase: 'Creating' })
 * await kit.untilPhase('mailbox', 'ann', 'Created')
 * await kit.close()
 * ```
 * @packageDocumentation
 */
export { AppKit, type AppKitOptions } from './app-kit.js'
export { type AppBuilder, lifecycleInApp } from './app-under-test.js'

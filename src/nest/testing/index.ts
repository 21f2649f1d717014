export { AppKit, type AppKitOptions } from './app-kit.js'
export { type AppBuilder, lifecycleInApp } from './app-under-test.js'

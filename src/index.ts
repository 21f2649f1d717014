export * from './phases/index.js'

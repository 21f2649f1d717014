export * from './bucket/index.js'
export * from './instance/index.js'
export * from './kubernetes-job/index.js'

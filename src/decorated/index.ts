export { Need, needed, needsModule, type UnmetNeed, warnBy } from './need.js'
export { noted } from './noted.js'

export { Need, needed, needsModule, type UnmetNeed, warnBy } from './need.js'
export { note, noted } from './noted.js'

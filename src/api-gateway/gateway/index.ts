export { creating } from './creating.js'
export { deleting } from './deleting.js'
export { starting, stopping } from './routing.js'

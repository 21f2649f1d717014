import core from './jest.config.mjs'
import { systemTests } from './test/tiers.mjs'

/** `npm run test:system`: what needs other servers or tools, starts processes, or takes long. */
// Each starts processes of its own: two at once fill two cores.
// Their database is on a disk, like the folders that they fill with programs: /dev/shm may refuse to run those.
export default { ...core, testMatch: systemTests, maxWorkers: 2, globals: {} }

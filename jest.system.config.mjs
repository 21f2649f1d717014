import core from './jest.config.mjs'
import { systemTests } from './test/tiers.mjs'

/** `npm run test:system`: what needs other servers or tools, starts processes, or takes long. */
export default { ...core, testMatch: systemTests }

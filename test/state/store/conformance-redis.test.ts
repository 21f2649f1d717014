import { conforms } from './conformance.js'
import { redisUnderTest } from './redis-store.js'

conforms('redis', redisUnderTest)

import { conforms } from './conformance.js'
import { memoryUnderTest, mongoUnderTest } from './stores.js'

conforms('mongodb', mongoUnderTest)
conforms('memory', memoryUnderTest)

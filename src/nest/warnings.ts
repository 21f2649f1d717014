import { Logger } from '@nestjs/common'
import { warnBy } from '../decorated/index.js'

// Imported for this alone: an app that has none of Phaselock's modules is told by its own log.
warnBy((message) => new Logger('Phaselock').warn(message))

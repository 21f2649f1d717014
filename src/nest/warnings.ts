import { Logger } from '@nestjs/common'
import { warnBy } from '../decorated/index.js'

// Imported only for this effect: an app without Phaselock's modules is warned in its own log.
warnBy((message) => new Logger('Phaselock').warn(message))

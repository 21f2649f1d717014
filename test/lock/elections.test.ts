import { describeVerdicts } from './elections.js'

describeVerdicts(false)

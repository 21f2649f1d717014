import { describeVerdicts } from './elections.js'

describeVerdicts(true)

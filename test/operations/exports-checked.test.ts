import { expect, test } from '@jest/globals'
import * as checked from '../../src/operations/checked.js'
import * as operations from '../../src/operations/index.js'

test('each exported function that acts on a system is one of those whose arguments are checked', () => {
  const exported = Object.keys(operations)
  const pure =
    /^(nameOf|holderOf|usesText|isOver|clockFindings|conditionOf|explain|pausedText|causeText|isAcknowledged|quietText|phaseCounts|ageToSay|seenIn|sparkline|countText|recorded|id\w+|modelOf)$/
  const others =
    /^(operationLifecycle|registeredLifecycles|\w+OverHttp|httpProblemOf|knownSender|fromExtendedJson|NotFound|OperationError|Refused|UsageError|[A-Z_]+)$/
  const unchecked = exported.filter((name) => !(name in checked) && !pure.test(name) && !others.test(name))
  expect(unchecked).toEqual([])
})

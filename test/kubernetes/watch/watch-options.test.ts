import { expect, test } from '@jest/globals'
import { InvalidWatchOptions, watchObjects } from '../../../src/kubernetes/index.js'

const kinds = [{ apiVersion: 'v1', kind: 'ConfigMap' }]
const clusters = () => []

test.each<[object, string]>([
  [
    { kinds, clusters, cluster: 'eu-1' },
    "unknown option 'cluster' (did you mean 'clusters'?); known: kinds, clusters, namespaces, refresh",
  ],
  [{ kinds: [], clusters }, 'kinds: expected a kind at least'],
  [{ kinds: [{ kind: 'ConfigMap' }], clusters }, 'kinds.0.apiVersion: expected a string'],
  [{ kinds: [{ ...kinds[0], verdict: 'Ready' }], clusters }, 'kinds.0.verdict: expected a function'],
  [{ kinds }, 'clusters: expected a function'],
  [{ kinds, clusters, silence: 150 }, "silence: expected a duration from 1s to 1h, such as '30s' or '5m', got 150"],
  [{ kinds, clusters, refresh: '1ms', retryWithin: '5' }, 'refresh: expected a duration from 100ms'],
])('%j is refused', (options, problem) => {
  expect(() => watchObjects(options as never)).toThrow(InvalidWatchOptions)
  expect(() => watchObjects(options as never)).toThrow(problem)
})

import { expect, test } from '@jest/globals'
import { Cluster } from '../../src/kubernetes/index.js'

test.each<[unknown, string]>([
  [undefined, 'a Cluster: expected an object, got undefined'],
  [
    {},
    "a Cluster: name: expected a string, got undefined; kubeconfig: expected a kubeconfig ('default', 'inCluster', its text, or { file: '...' }), got undefined",
  ],
  [{ name: 'eu', kubeconfig: 'default', requestTimeout: 5 }, 'requestTimeout: expected a duration from 1ms to 1d'],
  [{ name: 'eu', kubeconfig: 'default', kubeConfig: '' }, "unknown option 'kubeConfig' (did you mean 'kubeconfig'?)"],
])('a Cluster of %j is refused', (given, problem) => {
  expect(() => Cluster.of(given as never)).toThrow(expect.objectContaining({ name: 'InvalidOptions' }))
  expect(() => Cluster.of(given as never)).toThrow(problem)
})

import { describe, expect, test } from '@jest/globals'
import { someFieldsOf } from '../../../packages/tasks/src/fields.js'
import { checkFields, containerShape, podTrouble } from '../../../packages/tasks/src/pods/index.js'

const pod = (name: string, status: object, more: object = {}) => ({ metadata: { name, ...more }, status }) as never
const waiting = (reason: string, message?: string) => ({
  containerStatuses: [{ name: 'app', image: 'shop:9', state: { waiting: { reason, message } } }],
})

describe("a pod's trouble", () => {
  test.each([
    [
      'ErrImagePull',
      waiting('ErrImagePull', 'no route'),
      "ErrImagePull: pod a, container app: the image 'shop:9' can't be pulled: no route",
    ],
    [
      'InvalidImageName',
      waiting('InvalidImageName'),
      "InvalidImageName: pod a, container app: 'shop:9' can't be an image's name",
    ],
    [
      'a missing Secret',
      waiting('CreateContainerConfigError', 'secret "shop" not found'),
      `CreateContainerConfigError: pod a, container app: the container's configuration can't be created: secret "shop" not found`,
    ],
    ['a word of its own', waiting('OutOfTea', 'none left'), 'OutOfTea: pod a, container app: none left'],
    [
      'an end between two restarts',
      { containerStatuses: [{ name: 'app', state: { terminated: { exitCode: 1, signal: 9, reason: 'Error' } } }] },
      'Error: pod a, container app: it ended with exit code 1, signal 9 (Error)',
    ],
    [
      'a crash of an init container',
      {
        initContainerStatuses: [
          {
            ...{ name: 'init', restartCount: 1, state: { waiting: { reason: 'CrashLoopBackOff' } } },
            lastState: { terminated: { exitCode: 2 } },
          },
        ],
      },
      'CrashLoopBackOff: pod a, container init: it ended with exit code 2, restarted once',
    ],
    ['an eviction', { phase: 'Failed', reason: 'Evicted', message: 'low on memory' }, 'Evicted: pod a: low on memory'],
  ])('%s in words', (_what, status, message) => {
    expect(podTrouble([pod('a', status)])?.message).toBe(message)
  })

  test('is that of the worst pod, with how many have it; pods that only need time, or go, have none', () => {
    const unschedulable = {
      conditions: [{ type: 'PodScheduled', status: 'False', reason: 'Unschedulable', message: 'no room' }],
    }
    const creating = pod('a', waiting('ContainerCreating'))
    const going = pod('b', waiting('ErrImagePull'), { deletionTimestamp: '2026-01-01T00:00:00Z' })
    expect(podTrouble([creating, going, pod('c', {}), pod('d', { phase: 'Running' })])).toBeUndefined()
    const pods = [pod('e', unschedulable), pod('f', waiting('ImagePullBackOff')), pod('g', waiting('ImagePullBackOff'))]
    expect(podTrouble(pods)).toEqual({
      reason: 'ImagePullBackOff',
      message: "ImagePullBackOff: pod f, container app: the image 'shop:9' can't be pulled (and 1 more pod)",
    })
  })
})

describe("a container's fields", () => {
  const shape = someFieldsOf(containerShape)
  const digest = `sha256:${'0a'.repeat(32)}`

  test.each([
    'shop',
    'shop:1.2-rc_3',
    'a/b/c-d__e',
    'registry.example.org:5000/team/shop:1',
    `shop@${digest}`,
    `localhost/x:y@${digest}`,
  ])("'%s' is an image", (image) => expect(checkFields(shape, { image })).toMatchObject({ spec: { image } }))

  test.each([
    '',
    'Shop',
    'shop:',
    'shop:-1',
    'a//b',
    'shop@sha256:12',
    'https://x/y',
    'a b',
    5,
    null,
    undefined,
    'a'.repeat(600),
  ])('%j is none', (image) =>
    expect(checkFields(shape, { image })).toMatchObject({
      problem: expect.stringMatching(/^image: expected an image such as/),
    }),
  )

  test('amounts may be numbers; what is wrong is said with its path, what came, and what was expected', () => {
    const resources = { requests: { cpu: 2, memory: '1.5Gi' }, limits: { 'example.com/gpu': 1 } }
    expect(checkFields(shape, { image: 'a', resources })).toMatchObject({
      spec: { resources: { requests: { cpu: '2' } } },
    })
    const wrong = {
      image: 'a',
      resources: { requests: { cpu: '-1' }, maximum: {} },
      env: { A: { secret: { name: 'S' } } },
    }
    const { problem } = checkFields(shape, wrong) as { problem: string }
    expect(problem).toContain(`resources.requests.cpu: expected an amount such as '250m' or '128Mi', got "-1"`)
    expect(problem).toContain('env.A')
    expect(problem).toMatch(/maximum/)
  })
})

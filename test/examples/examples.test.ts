import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { expect, test } from '@jest/globals'
import { describeWithCluster } from '../kubernetes/support/index.js'
import { useDatabase } from '../support/database.js'

const database = useDatabase()

/** Runs an example as its readers do, against the run's server; it must exit with 0. */
async function run(name: string, env: Record<string, string> = {}): Promise<string> {
  const { stdout } = await promisify(execFile)(process.execPath, ['examples/run.mjs', name], {
    env: { ...process.env, MONGODB_URI: database.uri, NODE_OPTIONS: '', ...env },
  })
  return stdout
}

test('examples/without-nest runs until its sites are Created and one is Deleted', async () => {
  const said = await run('without-nest')
  expect(said).toMatch(/bea-\S+: serve the name: the name is not served yet/)
  expect(said).toMatch(/its owner wants Deleted: it goes to Deleting/)
  expect(said.match(/: Created, \/srv\//g)).toHaveLength(2)
  expect(said.match(/: Deleted, \/srv\//g)).toHaveLength(1)
}, 300_000)

test('examples/nest-app runs until its mailboxes are Created and one is Deleted', async () => {
  const said = await run('nest-app')
  expect(said).toMatch(/ann-\S+: waits: the mail server is not done yet/)
  expect(said.match(/Creating -> Created by a step/g)).toHaveLength(3)
  expect(said.match(/: Created, \S+@example\.org/g)).toHaveLength(2)
  expect(said.match(/: Deleted, \S+@example\.org/g)).toHaveLength(1)
}, 300_000)

describeWithCluster('examples/kubernetes', (cluster) => {
  test('makes its pages in the cluster, waits until they are ready, and removes them', async () => {
    const namespace = await cluster().namespace('example')
    const said = await run('kubernetes', { KUBECONFIG: cluster().kubeconfig, EXAMPLE_NAMESPACE: namespace })
    expect(said.match(/^ {2}\S+: ready: goes to Created$/gm)).toHaveLength(2)
    expect(said.match(/: goes to Deleted$/gm)).toHaveLength(2)
    const left = await cluster().admin.list('apps/v1', 'Deployment', namespace)
    expect(left.items).toEqual([])
  })
})

test('examples/kubernetes without a cluster says what it needs', async () => {
  const failed = await run('kubernetes', { PATH: '', KUBECONFIG: '' }).catch((error) => error)
  expect(failed).toMatchObject({ code: 2, stderr: expect.stringMatching(/^kubernetes: expected KUBECONFIG .* or Go/) })
})

test('an unknown example is refused with the known ones', async () => {
  const failed = await run('nest').catch((error) => error)
  expect(failed).toMatchObject({ code: 2, stderr: 'expected without-nest or nest-app or kubernetes, got nest\n' })
})

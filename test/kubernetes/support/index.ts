import { afterAll, beforeAll, jest } from '@jest/globals'
import { bePatient } from '../../support/database.js'
import { type ControlPlane, startControlPlane } from '../control-plane/control-plane.mjs'
import { sharedControlPlane } from '../control-plane/shared.mjs'
import { describeWhere, START_TIMEOUT_MS } from './availability.js'
import { TestCluster } from './test-cluster.js'

export type { ControlPlane } from '../control-plane/control-plane.mjs'
export { type AuditEvent, type TestAccount, TestCluster } from './test-cluster.js'

// Controllers, a busy API server and this machine's other tests: what takes a second may take a minute. A file may say otherwise.
jest.setTimeout(900_000)
bePatient(180_000)

/**
 * Tests on a real API server: that of KUBECONFIG if it is set, else one control plane for the whole run, started when the first test
 * file needs it. Each `describe` has a TestCluster of its own and leaves nothing of it behind. Without Go the tests are skipped.
 *
 * ```ts
 * describeWithCluster('ingresses', (cluster) => {
 *   test('...', async () => {
 *     const namespace = await cluster().namespace()
 * ```
 */
export function describeWithCluster(name: string, body: (cluster: () => TestCluster) => void): void {
  describeWhere(name, { own: false }, () => {
    let current: TestCluster | undefined
    beforeAll(async () => {
      const folder = runFolder()
      current = await TestCluster.connect({
        ...(process.env['KUBECONFIG'] ? {} : await runsControlPlane(folder)),
        folder,
      })
    }, START_TIMEOUT_MS)
    afterAll(() => current?.release())
    body(() => there(current))
  })
}

/** A control plane that a test may stop and start, with a client of it. */
export interface OwnControlPlane {
  readonly controlPlane: ControlPlane
  readonly cluster: TestCluster
}

/** Tests on a control plane of their own, whatever KUBECONFIG says: it takes 0.7 GB and some seconds, so few need one. */
export function describeWithControlPlane(name: string, body: (own: () => OwnControlPlane) => void): void {
  describeWhere(name, { own: true }, () => {
    let current: OwnControlPlane | undefined
    beforeAll(async () => {
      const controlPlane = await startControlPlane({ note: (text) => process.stderr.write(`control plane: ${text}\n`) })
      const { kubeconfig, auditLog, folder } = controlPlane
      current = { controlPlane, cluster: await TestCluster.connect({ kubeconfig, auditLog, folder }) }
    }, START_TIMEOUT_MS)
    afterAll(() => current?.controlPlane.stop())
    body(() => there(current))
  })
}

function runsControlPlane(folder: string) {
  const pid = Number(process.env['PHASELOCK_TEST_RUN'])
  if (!pid) throw new Error('expected PHASELOCK_TEST_RUN from globalSetup, it is not set')
  return sharedControlPlane({ folder, pid })
}

function runFolder(): string {
  const folder = process.env['PHASELOCK_TEST_FOLDER']
  if (!folder) throw new Error('expected PHASELOCK_TEST_FOLDER from globalSetup, it is not set')
  return folder
}

function there<T>(current: T | undefined): T {
  if (!current) throw new Error('the cluster exists inside tests and hooks only')
  return current
}

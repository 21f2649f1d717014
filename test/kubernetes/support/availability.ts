import { existsSync } from 'node:fs'
import { delimiter, join } from 'node:path'
import { describe, test } from '@jest/globals'

/** Seconds, far more on a busy machine; nothing is built meanwhile: test/system.mjs has done that. */
export const START_TIMEOUT_MS = 10 * 60_000

/**
 * Why there can't be a cluster here, `undefined` if there can: KUBECONFIG names an existing one, or Go is there to build one.
 * @param own a control plane of the test's own, which it may break
 */
export function whyNoCluster({ own }: { own: boolean }): string | undefined {
  if (process.env['KUBECONFIG'] && !own) return undefined
  const folders = (process.env['PATH'] ?? '').split(delimiter).filter(Boolean)
  if (folders.some((folder) => existsSync(join(folder, 'go')))) return undefined
  const instead = own ? '' : ', or set KUBECONFIG to the kubeconfig of a cluster for tests, with cert-manager'
  return `expected Go 1.26 in PATH to build a Kubernetes control plane, it is not there; install it${instead}`
}

/** `describe`; where there can't be a cluster its tests are skipped, and it says so. In CI that is a failure. */
export function describeWhere(name: string, options: { own: boolean }, body: () => void): void {
  const missing = whyNoCluster(options)
  if (!missing) describe(name, body)
  else if (process.env['CI'])
    describe(name, () => {
      test('needs a cluster', () => {
        throw new Error(missing)
      })
    })
  else {
    process.stderr.write(`skipped: ${name}: ${missing}\n`)
    describe.skip(name, body)
  }
}

/** A control plane to try things out on, until Ctrl-C: `node test/kubernetes/control-plane/up.mjs` prints where it is. */
import { startControlPlane } from './control-plane.mjs'

const controlPlane = await startControlPlane({ note: (text) => console.error(text) })
console.log(`export KUBECONFIG=${controlPlane.kubeconfig}`)
const waiting = setInterval(() => undefined, 60_000)
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) {
  process.once(signal, async () => {
    clearInterval(waiting)
    await controlPlane.stop()
  })
}

import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { describe, expect, test } from '@jest/globals'
import { Circuit } from '../../src/kubernetes/api/circuit.js'
import { Cluster, podLog } from '../../src/kubernetes/index.js'
import { Unavailable } from '../../src/phases/index.js'
import { systemClock } from '../../src/time/index.js'

describe('a circuit', () => {
  let nowMs = 0
  const clock = { now: () => new Date(nowMs), monotonicMs: () => nowMs }

  const entered = (circuit: Circuit) => {
    const ticket = circuit.enter()
    if ('reason' in ticket) throw new Error(ticket.reason)
    return ticket
  }
  const refused = (circuit: Circuit) => {
    const ticket = circuit.enter()
    return 'reason' in ticket ? ticket.reason : undefined
  }

  test('refuses for 5 s after a request without reply, then lets one try, and opens when that is answered', () => {
    const circuit = new Circuit(clock)
    entered(circuit).ended('failed', 'connection refused')
    expect(circuit.lastFailure).toBe('connection refused')
    nowMs += 4_999
    expect(refused(circuit)).toBe('connection refused (it is asked again every 5 s)')
    nowMs += 1
    const trial = entered(circuit)
    expect(refused(circuit)).toBeDefined()
    trial.ended('reply')
    expect(circuit.lastFailure).toBeUndefined()
    entered(circuit).ended('reply')
  })

  test('a server that answers nothing while requests wait gets no more of them; an answer ends that', () => {
    const circuit = new Circuit(clock)
    const hanging = entered(circuit)
    nowMs += 1_000
    const second = entered(circuit)
    nowMs += 1_000
    expect(refused(circuit)).toBe('other requests are waiting for its answer')
    second.ended('reply')
    entered(circuit).ended('cancelled')
    // Slow by itself, while others were answered: no sign of an outage.
    hanging.ended('failed', 'no answer within 5 s')
    expect(circuit.lastFailure).toBeUndefined()
  })

  test('a log that a node does not give says nothing about the server', async () => {
    const resources = [{ name: 'pods', kind: 'Pod', namespaced: true }]
    const server = createServer(({ url = '' }, response) => {
      if (url.includes('/log')) return void response.destroy()
      const body = url.startsWith('/api/v1/') ? { kind: 'Pod' } : { kind: 'APIResourceList', resources }
      response.end(JSON.stringify(body))
    }).listen(0, '127.0.0.1')
    await once(server, 'listening')
    const { port } = server.address() as AddressInfo
    const config = {
      clusters: [{ name: 'c', cluster: { server: `http://127.0.0.1:${port}`, 'insecure-skip-tls-verify': true } }],
      contexts: [{ name: 'x', context: { cluster: 'c', user: 'u' } }],
      users: [{ name: 'u', user: {} }],
      'current-context': 'x',
    }
    const circuit = new Circuit(systemClock)
    const cluster = Cluster.of({ name: 'eu', kubeconfig: JSON.stringify(config), circuit })
    const about = { namespace: 'a', pod: 'b', lines: 1, limitBytes: 100 }
    await expect(podLog(cluster, about)).rejects.toBeInstanceOf(Unavailable)
    expect(circuit.lastFailure).toBeUndefined()
    expect(circuit.enter()).not.toHaveProperty('reason')
    server.closeAllConnections()
    server.close()
  })
})

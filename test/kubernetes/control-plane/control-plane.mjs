import { generateKeyPairSync, randomBytes } from 'node:crypto'
import { mkdtemp, readFile, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { Api } from './api.mjs'
import { freePorts } from './ports.mjs'
import { Processes } from './processes.mjs'
import { argumentsOf } from './program-arguments.mjs'
import { controlPlanePrograms } from './programs.mjs'

const PORT_TRIES = 5
/** The API server holds up creations of a kind that has been served for less than 2 s. */
const NEW_KIND_MS = 2_000
const NODE = {
  apiVersion: 'v1',
  kind: 'Node',
  metadata: { name: 'node-0', labels: { 'kubernetes.io/hostname': 'node-0' } },
}
/** Where cert-manager looks for the secrets of cluster-wide issuers. */
const ISSUER_NAMESPACE = { apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'cert-manager' } }

/**
 * Starts a control plane of its own: etcd, the API server, the controllers, the scheduler, kwok in the place of kubelets (pods
 * become ready, nothing runs) and cert-manager. It listens on 127.0.0.1 only and goes, with its folder, on `stop()` and when
 * this process ends in whatever way. About 6 s; the first time its programs have to be built: see programs.mjs.
 *
 * @param options `note`: told what takes long
 * @throws ServerMissing without Go, ServerFailed when something doesn't build or come up
 */
export async function startControlPlane({ note } = {}) {
  const programs = await controlPlanePrograms(note)
  for (let attempt = 1; ; attempt += 1) {
    const folder = await mkdtemp(join(tmpdir(), 'phaselock-kubernetes-'))
    const controlPlane = new ControlPlane(programs, new Processes(folder), await freePorts(3))
    try {
      await controlPlane.start()
      return controlPlane
    } catch (error) {
      await controlPlane.stop()
      // Somebody else took a port between our look and the server's.
      if (attempt === PORT_TRIES || !/address already in use/i.test(error.log ?? '')) throw error
    }
  }
}

class ControlPlane {
  #programs
  #processes
  #arguments
  #token = randomBytes(16).toString('hex')
  #api
  #stopped

  constructor(programs, processes, ports) {
    this.#programs = programs
    this.#processes = processes
    this.folder = processes.folder
    this.server = `https://127.0.0.1:${ports[2]}`
    this.kubeconfig = join(this.folder, 'kubeconfig')
    /** What service accounts asked for: a line of JSON each. */
    this.auditLog = join(this.folder, 'audit.log')
    this.#arguments = argumentsOf(
      this,
      ports,
      fileURLToPath(new URL('audit-policy.json', import.meta.url)),
      programs.stages,
    )
  }

  /** The process of one of the programs, `undefined` while it is stopped. */
  pidOf(name) {
    return this.#processes.pidOf(name)
  }

  /** Stops one of the programs (`kube-apiserver`, ...), by SIGTERM unless told otherwise. Its data stay. */
  stopProgram(name, signal) {
    return this.#processes.stop(name, signal)
  }

  /** Starts it again, on the same port; resolves when it is ready. */
  async startProgram(name) {
    await this.#run(name)
    if (name === 'kube-apiserver') await this.#ready()
  }

  /** Ends everything and removes the folder. */
  stop() {
    this.#stopped ??= this.#processes.end()
    return this.#stopped
  }

  async start() {
    await this.#writeSecrets()
    await this.#run('etcd')
    await this.#run('kube-apiserver')
    await this.#writeKubeconfig(await this.#processes.until("the API server's certificate", () => this.#authority()))
    await this.#ready()
    await this.#defineKinds()
    const definedAt = performance.now()
    // After the definitions: the garbage collector looks for new kinds only every 30 s.
    await this.#run('kube-controller-manager')
    await this.#run('kube-scheduler')
    await this.#run('kwok')
    await this.#api.apply('/api/v1/namespaces/cert-manager', JSON.stringify(ISSUER_NAMESPACE))
    await this.#api.apply('/api/v1/nodes/node-0', JSON.stringify(NODE))
    await this.#run('cert-manager')
    const account = '/api/v1/namespaces/default/serviceaccounts/default'
    await this.#processes.until('default service account', () => this.#api.get(account))
    await this.#processes.until('node that is ready', () => this.#nodeIsReady())
    const certManagerLog = this.#processes.logFile('cert-manager')
    await this.#processes.until('cert-manager', async () => /^ready$/m.test(await readFile(certManagerLog, 'utf8')))
    await sleep(Math.max(0, definedAt + NEW_KIND_MS - performance.now()))
  }

  #run(name) {
    return this.#processes.start(name, this.#programs.paths[name], this.#arguments[name])
  }

  #ready() {
    return this.#processes.until('answer from the API server', () => this.#api.get('/readyz'))
  }

  async #writeSecrets() {
    const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
    const key = privateKey.export({ type: 'sec1', format: 'pem' })
    await writeFile(join(this.folder, 'service-accounts.key'), key, { mode: 0o600 })
    const tokens = `${this.#token},admin,admin,"system:masters"\n`
    await writeFile(join(this.folder, 'tokens.csv'), tokens, { mode: 0o600 })
  }

  /** The API server makes its certificate itself; the last one of the file is its authority's. */
  async #authority() {
    const text = await readFile(join(this.folder, 'certificates/apiserver.crt'), 'utf8').catch(() => '')
    const blocks = text.split(/(?<=-----END CERTIFICATE-----\n)/)
    return blocks.length === 2 ? blocks[1] : undefined
  }

  /** JSON, which is YAML too. */
  async #writeKubeconfig(authority) {
    const cluster = { server: this.server, 'certificate-authority-data': Buffer.from(authority).toString('base64') }
    const kubeconfig = {
      apiVersion: 'v1',
      kind: 'Config',
      clusters: [{ name: 'test', cluster }],
      users: [{ name: 'admin', user: { token: this.#token } }],
      contexts: [{ name: 'test', context: { cluster: 'test', user: 'admin', namespace: 'default' } }],
      'current-context': 'test',
    }
    await writeFile(this.kubeconfig, JSON.stringify(kubeconfig, null, 2), { mode: 0o600 })
    this.#api = new Api(this.server, authority, this.#token)
  }

  async #defineKinds() {
    const definitions = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions'
    for (const { group, plural, text } of this.#programs.customResources) {
      await this.#api.apply(`${definitions}/${plural}.${group}`, text)
    }
    for (const { group, plural } of this.#programs.customResources) {
      await this.#processes.until(`${plural}.${group}`, () => this.#api.get(`/apis/${group}/v1/${plural}`))
    }
  }

  async #nodeIsReady() {
    const node = await this.#api.get('/api/v1/nodes/node-0')
    return node?.status?.conditions?.some(({ type, status }) => type === 'Ready' && status === 'True')
  }
}

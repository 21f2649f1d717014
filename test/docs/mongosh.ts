import vm from 'node:vm'
import { MessageChannel, receiveMessageOnPort, Worker } from 'node:worker_threads'
import { BSON, type Document, ObjectId } from 'mongodb'

interface Call {
  readonly collection: string
  readonly method: string
  readonly args: readonly unknown[]
  readonly chain: readonly { readonly name: string; readonly args: readonly unknown[] }[]
}

const CURSOR_METHODS = ['sort', 'limit', 'skip', 'hint', 'maxTimeMS', 'batchSize']
const COLLECTION_METHODS = [
  'findOne',
  'distinct',
  'countDocuments',
  'insertOne',
  'insertMany',
  'updateOne',
  'updateMany',
  'deleteOne',
]

/**
 * Runs lines of mongosh: as much of `db.<Collection>` as the documentation uses, with calls that return their result and no
 * promise, `ISODate` and `ObjectId`. A line's cursor is read to its end, as the shell prints it.
 */
export class Mongosh {
  private readonly signal = new Int32Array(new SharedArrayBuffer(4))
  private readonly channel = new MessageChannel()
  private readonly worker: Worker
  private readonly context: vm.Context
  /** The last find or aggregate, for {@link explainLast}. */
  private last: Call | undefined

  constructor(uri: string, database: string) {
    const { port1, port2 } = this.channel
    const workerData = { uri, database, port: port2, signal: this.signal }
    this.worker = new Worker(new URL('./mongosh-worker.mjs', import.meta.url), { workerData, transferList: [port2] })
    this.worker.unref()
    port1.unref()
    const collectionNamed = (name: string) => this.collection(name)
    const db = new Proxy({ getCollection: collectionNamed } as Record<string, unknown>, {
      get: (known, name: string) => known[name] ?? collectionNamed(name),
    })
    const ISODate = (text?: string) => (text === undefined ? new Date() : new Date(text))
    this.context = vm.createContext({ db, ISODate, ObjectId: (hex?: string) => new ObjectId(hex), Date })
  }

  /** The value of the last line. */
  run(lines: string): any {
    const value = vm.runInContext(lines, this.context)
    return value instanceof Cursor ? value.toArray() : value
  }

  /** How the server runs the last find or aggregate. */
  explainLast(): Document {
    if (!this.last) throw new Error('expected a find or an aggregate before')
    return this.call({ ...this.last, chain: [...this.last.chain, { name: 'explain', args: ['executionStats'] }] })
  }

  async close(): Promise<void> {
    await this.worker.terminate()
    this.channel.port1.close()
  }

  private collection(name: string): Record<string, unknown> {
    const cursor = (method: string) => (first: unknown, second: unknown) => {
      const args = method === 'find' ? [first ?? {}, { projection: second ?? {} }] : [first ?? [], second ?? {}]
      return new Cursor({ collection: name, method, args, chain: [] }, (call) => {
        this.last = call
        return this.call(call)
      })
    }
    const findOne = (filter: unknown, projection: unknown) =>
      this.call({
        collection: name,
        method: 'findOne',
        args: [filter ?? {}, { projection: projection ?? {} }],
        chain: [],
      })
    const plain = COLLECTION_METHODS.map((method) => [
      method,
      (...args: unknown[]) => this.call({ collection: name, method, args, chain: [] }),
    ])
    return { ...Object.fromEntries(plain), find: cursor('find'), aggregate: cursor('aggregate'), findOne }
  }

  private call(call: Call): any {
    Atomics.store(this.signal, 0, 0)
    this.channel.port1.postMessage(BSON.serialize(call as unknown as Document, { ignoreUndefined: true }))
    Atomics.wait(this.signal, 0, 0, 100_000)
    const reply = receiveMessageOnPort(this.channel.port1)
    if (!reply) throw new Error('expected a reply of the server within 100 s, got none')
    const { value, error } = BSON.deserialize(reply.message)
    if (error) throw new Error(error)
    return value
  }
}

class Cursor {
  constructor(
    private readonly request: Call,
    private readonly send: (call: Call) => Document[],
  ) {
    for (const name of CURSOR_METHODS) {
      Object.defineProperty(this, name, {
        value: (...args: unknown[]) => new Cursor({ ...request, chain: [...request.chain, { name, args }] }, send),
      })
    }
  }

  toArray(): Document[] {
    return this.send(this.request)
  }
  map<T>(change: (document: Document) => T): T[] {
    return this.toArray().map(change)
  }
  forEach(use: (document: Document) => void): void {
    this.toArray().forEach(use)
  }
}

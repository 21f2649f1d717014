/** A program: makes mongodb-memory-server (its main file is the only argument) find or download a mongod, and prints `path=...`. */
import { createRequire } from 'node:module'

interface MemoryServer {
  MongoBinary: { getPath(): Promise<string> }
}

const main = process.argv[2] ?? 'mongodb-memory-server'
try {
  const { MongoBinary } = createRequire(import.meta.url)(main) as MemoryServer
  process.stdout.write(`path=${await MongoBinary.getPath()}\n`)
} catch (error) {
  process.stderr.write(`${error instanceof Error ? error.message : error}\n`)
  process.exitCode = 1
}

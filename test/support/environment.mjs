/**
 * Jest's environment for Node, in which a worker compiles each module once. Jest gives each test file a realm of its own, and compiles
 * for each what it imports: with hundreds of modules (the driver, the sources) that took a third of the processor time of `npm test`.
 * Everything is still evaluated anew, so test files share nothing.
 */
import vm from 'node:vm'
import { TestEnvironment } from 'jest-environment-node'

const { compileFunction, Script, SourceTextModule } = vm

/** CommonJS, as a script: V8 knows one again by its source, with all that it has compiled of it since. */
vm.compileFunction = (source, parameters, options) => {
  // These need the loader of their own test file.
  if (source.includes('import(')) return compileFunction(source, parameters, options)
  const { filename, parsingContext } = options
  return new Script(`(function (${parameters.join(',')}) {${source}\n})`, { filename }).runInContext(parsingContext)
}

/** ES modules by their paths, as V8 keeps what it has compiled. */
const compiled = new Map()

vm.SourceTextModule = class extends SourceTextModule {
  constructor(source, options) {
    const before = compiled.get(options.identifier)
    const cachedData = before?.source === source ? before.cachedData : undefined
    super(source, { ...options, ...(cachedData && { cachedData }) })
    if (!cachedData) compiled.set(options.identifier, { source, cachedData: this.createCachedData() })
  }
}

export default TestEnvironment

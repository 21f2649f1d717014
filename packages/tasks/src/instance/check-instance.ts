import * as v from 'valibot'
import { expecting, fieldsOf, someFieldsOf, wholeNumber } from '../fields.js'
import { checkFields, containerShape } from '../pods/index.js'
import type { Instance } from './documents.js'

const MOST_REPLICAS = 10_000
const PORT_NAME = "a port's name (15 lower-case letters, digits and single inner hyphens at most, one letter at least)"

const port = wholeNumber(1, 65_535, 'a port from 1 to 65535')

const portName = v.pipe(
  v.string(expecting(PORT_NAME)),
  v.check(
    (name) => name.length <= 15 && /^[a-z0-9]+(?:-[a-z0-9]+)*$/.test(name) && /[a-z]/.test(name),
    expecting(PORT_NAME),
  ),
)

const instancePort = v.pipe(
  fieldsOf(
    {
      port,
      containerPort: v.optional(port),
      name: v.optional(portName),
      protocol: v.optional(v.picklist(['TCP', 'UDP'], expecting("'TCP' or 'UDP'")), 'TCP'),
    },
    expecting('ports such as { port: 80, containerPort: 8080 }'),
  ),
  v.transform(({ port, containerPort = port, protocol, name = `${protocol.toLowerCase()}-${port}` }) => ({
    port,
    containerPort,
    protocol,
    name,
  })),
)

const areDistinct = (names: readonly string[]) => new Set(names).size === names.length

const path = "a path such as '/healthz'"

const shape = someFieldsOf({
  ...containerShape,
  replicas: v.optional(wholeNumber(0, MOST_REPLICAS, `a whole number from 0 to ${MOST_REPLICAS}`), 1),
  ports: v.optional(
    v.pipe(
      v.array(instancePort, expecting('a list of ports')),
      v.maxLength(100, 'expected 100 ports at most'),
      v.check(
        (ports) =>
          areDistinct(ports.map(({ name }) => name)) &&
          areDistinct(ports.map(({ port, protocol }) => `${protocol} ${port}`)),
        'expected each port once, and names that differ',
      ),
    ),
    [],
  ),
  readiness: v.optional(
    fieldsOf(
      {
        port,
        path: v.optional(v.pipe(v.string(expecting(path)), v.regex(/^\/[\x21-\x7e]{0,1000}$/, expecting(path)))),
      },
      expecting('{ port, path }'),
    ),
  ),
})

/** The checked settings of an instance, with defaults. */
export type InstanceSpec = v.InferOutput<typeof shape>

/** Checks the owner's fields before any object is created from them. @returns the spec, or its problems in one string */
export function checkInstance(doc: Readonly<Instance>): { readonly spec: InstanceSpec } | { readonly problem: string } {
  return checkFields(shape, doc)
}

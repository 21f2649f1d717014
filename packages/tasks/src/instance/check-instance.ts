import { z } from 'zod'
import { checkFields, containerShape, expecting } from '../pods/index.js'
import type { Instance } from './documents.js'

const MOST_REPLICAS = 10_000
const PORT = 'a port from 1 to 65535'
const PORT_NAME = "a port's name (15 lower-case letters, digits and single inner hyphens at most, one letter at least)"

const port = z.int(expecting(PORT)).min(1, expecting(PORT)).max(65_535, expecting(PORT))

const portName = z
  .string(expecting(PORT_NAME))
  .refine(
    (name) => name.length <= 15 && /^[a-z0-9]+(?:-[a-z0-9]+)*$/.test(name) && /[a-z]/.test(name),
    expecting(PORT_NAME),
  )

const instancePort = z
  .strictObject(
    {
      port,
      containerPort: port.optional(),
      name: portName.optional(),
      protocol: z.enum(['TCP', 'UDP'], expecting("'TCP' or 'UDP'")).default('TCP'),
    },
    expecting('ports such as { port: 80, containerPort: 8080 }'),
  )
  .transform(({ port, containerPort = port, protocol, name = `${protocol.toLowerCase()}-${port}` }) => ({
    port,
    containerPort,
    protocol,
    name,
  }))

const areDistinct = (names: readonly string[]) => new Set(names).size === names.length

const REPLICAS = `a whole number from 0 to ${MOST_REPLICAS}`

const shape = z.object({
  ...containerShape,
  replicas: z.int(expecting(REPLICAS)).min(0, expecting(REPLICAS)).max(MOST_REPLICAS, expecting(REPLICAS)).default(1),
  ports: z
    .array(instancePort, expecting('a list of ports'))
    .max(100, 'expected 100 ports at most')
    .refine(
      (ports) =>
        areDistinct(ports.map(({ name }) => name)) &&
        areDistinct(ports.map(({ port, protocol }) => `${protocol} ${port}`)),
      'expected each port once, and names that differ',
    )
    .default([]),
  readiness: z
    .strictObject(
      {
        port,
        path: z
          .string(expecting("a path such as '/healthz'"))
          .regex(/^\/[\x21-\x7e]{0,1000}$/, expecting("a path such as '/healthz'"))
          .optional(),
      },
      expecting('{ port, path }'),
    )
    .optional(),
})

/** What an instance is to run, checked, with its defaults. */
export type InstanceSpec = z.infer<typeof shape>

/** Checks the owner's fields before anything is made from them. @returns the spec, or what is wrong with it in one string */
export function checkInstance(doc: Readonly<Instance>): { readonly spec: InstanceSpec } | { readonly problem: string } {
  return checkFields(shape, doc)
}

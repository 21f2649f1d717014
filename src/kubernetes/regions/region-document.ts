import { z } from 'zod'

export const REGION_COLLECTION = 'Region'

const LABEL = /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/
const HOST = /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*$/
/** Stands for the gatewayId of a document (its `_id` where it has none) in a namespace rule. */
export const GATEWAY_ID = '{gatewayId}'

const SHOWN = 100
function got(input: unknown): string {
  if (input === undefined) return 'nothing'
  const text = JSON.stringify(input)
  return text.length > SHOWN ? `${text.slice(0, SHOWN)}...` : text
}
const expected = (what: string, show = got) => ({
  error: (issue: { input?: unknown }) => `expected ${what}, got ${show(issue.input)}`,
})
/** For fields that may hold a kubeconfig by mistake: its tokens must not get into documents or logs. */
function gotSomething(input: unknown): string {
  if (input === undefined) return 'nothing'
  if (typeof input === 'object' && input !== null) return `{ ${Object.keys(input).join(', ').slice(0, SHOWN)} }`
  return typeof input === 'string' ? 'a text' : String(input)
}
const text = (what: string, pattern: RegExp, show = got) =>
  z.string(expected(what, show)).regex(pattern, expected(what, show))
const flag = z.boolean(expected('true or false'))
const objectName = (what: string) => text(`the name of ${what}`, HOST)

const secretRef = z.strictObject(
  {
    namespace: text('a namespace', LABEL),
    name: objectName('a Secret'),
    /** The key in the Secret's data. */
    key: text('a key of the Secret', /^[\w.-]+$/).default('kubeconfig'),
  },
  expected('{ namespace, name, key }', gotSomething),
)

const cluster = z
  .strictObject(
    {
      inCluster: z.literal(true, expected('true')).optional(),
      kubeconfigFile: text('the path of a file', /^[^\n]*\S[^\n]*$/, gotSomething).optional(),
      kubeconfig: z
        .strictObject({ secret: secretRef }, expected('{ secret: { namespace, name, key } }', gotSomething))
        .optional(),
    },
    expected(
      '{ inCluster: true }, { kubeconfigFile } or { kubeconfig: { secret: { namespace, name, key } } }',
      gotSomething,
    ),
  )
  .refine((given) => Object.values(given).filter((value) => value !== undefined).length === 1, {
    error: (issue) =>
      `expected one of inCluster, kubeconfigFile and kubeconfig, got ${Object.keys(issue.input as object).join(', ') || 'none'}`,
  })

const issuer = z.strictObject(
  {
    name: objectName('an issuer of cert-manager'),
    kind: z.enum(['ClusterIssuer', 'Issuer'], expected("'ClusterIssuer' or 'Issuer'")).default('ClusterIssuer'),
    /** For issuers from outside cert-manager. */
    group: text('an API group', HOST).optional(),
  },
  expected('{ name, kind }'),
)

const tls = z
  .strictObject(
    {
      enabled: flag,
      issuer: issuer.optional(),
      /** A Secret in each namespace with a certificate for `*.<domain>`; without one the ingress controller's own is used. */
      wildcardSecret: objectName('a Secret').optional(),
    },
    expected('{ enabled, issuer, wildcardSecret }'),
  )
  .refine((given) => !given.enabled || given.issuer !== undefined, {
    path: ['issuer'],
    error: 'expected the issuer of certificates for custom domains, { name, kind }, as tls is enabled; got nothing',
  })

const gateway = z.strictObject(
  {
    /** The ending of the host names of gateways that have no domain of their own. */
    domain: text("a domain such as 'eu.example.org'", HOST),
    ingressClass: objectName('an IngressClass').optional(),
    /** Put on each Ingress: settings for its controller. */
    annotations: z.record(z.string(), z.string(expected('a text'))).default({}),
    tls: tls.default({ enabled: false }),
  },
  expected('{ domain, ingressClass, tls }'),
)

const namespaceRule = text(
  `a namespace, or a rule for one such as 'gw-${GATEWAY_ID}'`,
  /^(?=[a-z0-9{])(?=.*[a-z0-9}]$)[a-z0-9-]*(\{gatewayId\})?[a-z0-9-]*$/,
).max(63, 'expected 63 characters at most')

const regionDocument = z
  .strictObject({
    _id: text('a name of lower case letters, digits and inner hyphens', LABEL),
    cluster,
    namespace: namespaceRule,
    /** Whether gateways create their namespace, and remove it again; only with `{gatewayId}` in its name. */
    createNamespace: flag.default(false),
    gateway,
    createdAt: z.date().optional(),
    updatedAt: z.date().optional(),
  })
  .refine((given) => !given.createNamespace || given.namespace.includes(GATEWAY_ID), {
    path: ['createNamespace'],
    error: `expected a namespace rule with ${GATEWAY_ID}, so that a namespace belongs to one gateway; got one for all`,
  })

/** A region as its owner writes it. */
export type RegionDocument = z.input<typeof regionDocument>
/** A region with its defaults. */
export type RegionSpec = z.output<typeof regionDocument>
export type GatewaySettings = RegionSpec['gateway']
export type ClusterSource = RegionSpec['cluster']

/** The problems of a Region document, each with its path; or the region. */
export function readRegion(document: unknown): RegionSpec | { readonly problems: readonly string[] } {
  const parsed = regionDocument.safeParse(document)
  if (parsed.success) return parsed.data
  return { problems: parsed.error.issues.map(({ path, message }) => `${path.join('.') || 'the document'}: ${message}`) }
}

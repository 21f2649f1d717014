import { t } from '../../options/index.js'

/** The collection with the Region documents. */
export const REGION_COLLECTION = 'Region'

const LABEL = /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/
const HOST = /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*$/
/** The placeholder in a namespace rule for a document's gatewayId, or for its `_id` if it has none. */
export const GATEWAY_ID = '{gatewayId}'

const SHOWN = 100
function got(input: unknown): string {
  if (input === undefined) return 'nothing'
  const text = JSON.stringify(input, (_, part) => (typeof part === 'bigint' ? String(part) : part)) ?? String(input)
  return text.length > SHOWN ? `${text.slice(0, SHOWN)}...` : text
}
const expected =
  (what: string, show = got) =>
  (value: unknown) =>
    `expected ${what}, got ${show(value)}`
/** Describes a field that may hold a kubeconfig by mistake: its tokens must not get into documents or logs. */
function gotSomething(input: unknown): string {
  if (input === undefined) return 'nothing'
  if (typeof input === 'object' && input !== null) return `{ ${Object.keys(input).join(', ').slice(0, SHOWN)} }`
  return typeof input === 'string' ? 'a text' : String(input)
}
const text = (what: string, pattern: RegExp, show = got) =>
  t.where<string>((value) => typeof value === 'string' && pattern.test(value), expected(what, show))
const flag = t.where<boolean>((value) => typeof value === 'boolean', expected('true or false'))
const objectName = (what: string) => text(`the name of ${what}`, HOST)

const secretRef = t.object(
  {
    namespace: text('a namespace', LABEL),
    name: objectName('a Secret'),
    key: t.withDefault(text('a key of the Secret', /^[\w.-]+$/), 'kubeconfig'),
  },
  expected('{ namespace, name, key }', gotSomething),
)

const cluster = t.checked(
  t.object(
    {
      inCluster: t.optional(t.where<true>((value) => value === true, expected('true'))),
      kubeconfigFile: t.optional(text('the path of a file', /^[^\n]*\S[^\n]*$/, gotSomething)),
      kubeconfig: t.optional(
        t.object({ secret: secretRef }, expected('{ secret: { namespace, name, key } }', gotSomething)),
      ),
    },
    expected(
      '{ inCluster: true }, { kubeconfigFile } or { kubeconfig: { secret: { namespace, name, key } } }',
      gotSomething,
    ),
  ),
  (given) => Object.values(given).filter((value) => value !== undefined).length === 1,
  (given) =>
    `expected one of inCluster, kubeconfigFile and kubeconfig, got ${Object.keys(given as object).join(', ') || 'none'}`,
)

const issuer = t.object(
  {
    name: objectName('an issuer of cert-manager'),
    kind: t.withDefault(
      t.where<'ClusterIssuer' | 'Issuer'>(
        (value) => value === 'ClusterIssuer' || value === 'Issuer',
        expected("'ClusterIssuer' or 'Issuer'"),
      ),
      'ClusterIssuer',
    ),
    group: t.optional(text('an API group', HOST)),
  },
  expected('{ name, kind }'),
)

const tls = t.checked(
  t.object(
    {
      enabled: flag,
      issuer: t.optional(issuer),
      wildcardSecret: t.optional(objectName('a Secret')),
    },
    expected('{ enabled, issuer, wildcardSecret }'),
  ),
  (given) => !given.enabled || given.issuer !== undefined,
  'expected the issuer of certificates for custom domains, { name, kind }, as tls is enabled; got nothing',
  ['issuer'],
)

const gateway = t.object(
  {
    domain: text("a domain such as 'eu.example.org'", HOST),
    ingressClass: t.optional(objectName('an IngressClass')),
    annotations: t.withDefault(t.record(text('a text', /^/)), {}),
    tls: t.withDefault(tls, { enabled: false }),
  },
  expected('{ domain, ingressClass, tls }'),
)

const namespaceRule = t.checked(
  text(
    `a namespace, or a rule for one such as 'gw-${GATEWAY_ID}'`,
    /^(?=[a-z0-9{])(?=.*[a-z0-9}]$)[a-z0-9-]*(\{gatewayId\})?[a-z0-9-]*$/,
  ),
  ({ length }) => length <= 63,
  'expected 63 characters at most',
)

const aDate = t.where<Date>((value) => value instanceof Date && !Number.isNaN(value.getTime()), expected('a date'))

const regionDocument = t.checked(
  t.object({
    _id: text('a name of lower case letters, digits and inner hyphens', LABEL),
    cluster,
    namespace: namespaceRule,
    createNamespace: t.withDefault(flag, false),
    gateway,
    createdAt: t.optional(aDate),
    updatedAt: t.optional(aDate),
  }),
  (given) => !given.createNamespace || given.namespace.includes(GATEWAY_ID),
  `expected a namespace rule with ${GATEWAY_ID}, so that a namespace belongs to one gateway; got one for all`,
  ['createNamespace'],
)

/** A region with its defaults filled in. */
export type RegionSpec = t.ValueOf<typeof regionDocument>
/** Settings for serving a region's gateways: domain, ingress class, annotations and TLS, with defaults filled in. */
export type GatewaySettings = RegionSpec['gateway']
export type ClusterSource = RegionSpec['cluster']

/** A region as its owner writes it. */
export interface RegionDocument {
  /** The region's name, as documents give it in `region`. */
  readonly _id: string
  /** Exactly one of these fields. */
  readonly cluster: {
    readonly inCluster?: true | undefined
    readonly kubeconfigFile?: string | undefined
    /** `key`: the key in the Secret's data; default `kubeconfig`. */
    readonly kubeconfig?: { readonly secret: { namespace: string; name: string; key?: string | undefined } } | undefined
  }
  /** A namespace, or a rule for one such as `gw-{gatewayId}`. */
  readonly namespace: string
  /** True if gateways create and remove their namespace; only with `{gatewayId}` in its name. Default false. */
  readonly createNamespace?: boolean | undefined
  /** Settings for serving the gateways of this region. */
  readonly gateway: {
    /** The suffix of the host names of gateways that have no domain of their own. */
    readonly domain: string
    /** The `ingressClassName` of each Ingress. Default: the cluster's default class. */
    readonly ingressClass?: string | undefined
    /** Annotations of each Ingress: settings for its controller. */
    readonly annotations?: Readonly<Record<string, string>> | undefined
    /** Default: not enabled. */
    readonly tls?: RegionTls | undefined
  }
  /** The time of its creation; informative. */
  readonly createdAt?: Date | undefined
  /** The time of its last change; informative. */
  readonly updatedAt?: Date | undefined
}

/** The certificates of a region's gateways. */
export interface RegionTls {
  /** True if gateways are served over HTTPS. */
  readonly enabled: boolean
  /** The issuer of certificates for custom domains. `kind`: default ClusterIssuer; `group`: for issuers from outside cert-manager. */
  readonly issuer?:
    | { name: string; kind?: 'ClusterIssuer' | 'Issuer' | undefined; group?: string | undefined }
    | undefined
  /** A Secret in each namespace with a certificate for `*.<domain>`; without it the ingress controller's own certificate is used. */
  readonly wildcardSecret?: string | undefined
}

/** Returns the region, or the problems of its Region document, each with its path. */
export function readRegion(document: unknown): RegionSpec | { readonly problems: readonly string[] } {
  const read = t.readAs(regionDocument, document)
  if ('value' in read) return read.value
  return {
    problems: read.problems.map(({ path, message, isUnknown }) =>
      isUnknown ? `unknown field '${path.join('.')}'` : `${path.join('.') || 'the document'}: ${message}`,
    ),
  }
}

import { distinctName } from '../kit/index.js'

const LABEL_LENGTH = 63
const LABEL = /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/

/** An invalid host name. A valid one has labels of 1 to 63 letters, digits and hyphens, and at most 253 characters in all. */
export class InvalidHostName extends Error {
  override readonly name = 'InvalidHostName'
  constructor(
    /** The value as it was given. */
    readonly value: unknown,
  ) {
    super(
      `expected a host name such as 'shop.example.com' (labels of 1 to 63 letters, digits and inner hyphens, 253 characters at most), got ${JSON.stringify(value) ?? String(value)}`,
    )
  }
}

/**
 * The host name of a gateway without a domain of its own: `<name>.<base domain>`, else one derived from its id. A name that isn't
 * a valid label of a host name is turned into one, with a hash.
 */
export function hostNameFor(gatewayId: unknown, name: unknown, baseDomain: string): string {
  const isLabel = (text: string) => LABEL.test(text)
  const source = typeof name === 'string' && name.trim() !== '' ? name.trim().toLowerCase() : gatewayId
  const label = isNamed(source, name) && isLabel(source) ? source : distinctName(source, isLabel, LABEL_LENGTH)
  return `${label}.${baseDomain}`
}

const isNamed = (source: unknown, name: unknown): source is string =>
  typeof name === 'string' && typeof source === 'string'

/** @returns the host name in lower case. @throws InvalidHostName */
export function parseHostName(value: unknown): string {
  const host = typeof value === 'string' ? value.trim().toLowerCase().replace(/\.$/, '') : ''
  if (host.length > 253 || !host.split('.').every((label) => LABEL.test(label))) throw new InvalidHostName(value)
  return host
}

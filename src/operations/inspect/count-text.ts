import type { Count } from '../../phases/index.js'

export type { Count } from '../../phases/index.js'

/**
 * The text of a count for people.
 * @example countText({ n: 10_000, more: true }) // '10,000+'
 * @example countText({ n: 12_000, about: true }) // '~12,000'
 */
export function countText({ n, more, about }: Count): string {
  return `${about ? '~' : ''}${n.toLocaleString('en-US')}${more ? '+' : ''}`
}

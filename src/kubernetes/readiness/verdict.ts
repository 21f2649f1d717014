import type { KubernetesObject } from '../api/objects.js'

/**
 * The readiness of an object: `done` once it serves its purpose; until then `text` is for `step.wait`. `failed`: it never will without
 * help, however long a handler waits (a Job that has given up).
 */
export type Readiness =
  | { readonly done: true; readonly text: string; readonly object: KubernetesObject }
  | {
      readonly done: false
      readonly text: string
      readonly failed?: true
      /** Undefined: there is no such object. */
      readonly object?: KubernetesObject | undefined
    }

/** The missing part, in words that follow the object's name; undefined: nothing is missing. */
export type Missing = string | { readonly failed: string } | undefined

/** Requirements on an object beyond the usual ones of its kind. */
export interface ReadyOptions {
  /** The type of the condition that must be True, instead of the kind's own rule. */
  readonly condition?: string
  /** For an Ingress: true to require an address too. */
  readonly address?: boolean
}

/** Judges one kind. */
export type Rule = (object: KubernetesObject, options: ReadyOptions) => Missing

export interface Condition {
  readonly type: string
  readonly status: string
  readonly reason?: string
  readonly message?: string
  readonly observedGeneration?: number
}

type Fields = Readonly<Record<string, unknown>>

export const statusOf = (object: KubernetesObject): Fields => (object['status'] ?? {}) as Fields
export const specOf = (object: KubernetesObject): Fields => (object['spec'] ?? {}) as Fields

/** A count that the server omits when it is 0. */
export function countOf(fields: Fields, name: string, absent = 0): number {
  const count = fields[name]
  return typeof count === 'number' ? count : absent
}

export function conditionOf(object: KubernetesObject, type: string): Condition | undefined {
  const { conditions } = statusOf(object) as { conditions?: readonly Condition[] }
  return Array.isArray(conditions) ? conditions.find((condition) => condition.type === type) : undefined
}

/** `: Issuing: the private key is being made`, as far as the condition gives a reason. */
export function whyOf(condition: Pick<Condition, 'reason' | 'message'> | undefined): string {
  const words = [condition?.reason, condition?.message].filter((text) => text !== undefined && text !== '')
  return words.length === 0 ? '' : `: ${words.join(': ')}`
}

/** True if the status is about an older spec. */
export function isBehind(object: KubernetesObject, observed = statusOf(object)['observedGeneration']): boolean {
  const { generation } = object.metadata
  return generation !== undefined && typeof observed === 'number' && observed < generation
}

export const BEHIND = 'is not Ready: its controller has not seen the last change yet'

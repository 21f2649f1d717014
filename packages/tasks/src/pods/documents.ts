import { InvalidLifecycle } from 'phaselock'

/** An amount in Kubernetes' notation: `'250m'`, `'0.5'`, `2`, `'128Mi'`. */
export type Quantity = string | number

/** Amounts by resource: `cpu`, `memory`, `ephemeral-storage` or a device's name. */
export type Quantities = Readonly<Record<string, Quantity>>

export interface Resources {
  /** The amounts that the scheduler reserves for each pod. */
  readonly requests?: Quantities
  /** The amounts that a pod may use at most. */
  readonly limits?: Quantities
}

/** A value of the environment: the value itself, or the key of a Secret in the same namespace, which only Kubernetes reads. */
export type EnvValue =
  | string
  | number
  | boolean
  | { readonly secret: { readonly name: string; readonly key: string; readonly optional?: boolean } }

/** An owner's fields for the one container that a pod runs. */
export interface ContainerFields {
  /** `[registry/]name[:tag][@digest]`. */
  readonly image: string
  /** Replaces the image's entry point. */
  readonly command?: readonly string[]
  /** Replaces the image's arguments. */
  readonly args?: readonly string[]
  /** Values by the variable's name. */
  readonly env?: Readonly<Record<string, EnvValue>>
  readonly resources?: Resources
  /** Names of Secrets in the same namespace for pulling the image. */
  readonly imagePullSecrets?: readonly string[]
}

/**
 * The security profile of a pod on its node. `baseline`: no privilege escalation, the runtime's seccomp profile. `restricted`: in addition,
 * not as root and without any capability, as the Pod Security Standard of that name requires.
 */
export type PodSecurity = 'baseline' | 'restricted'

const POD_SECURITY: readonly PodSecurity[] = ['baseline', 'restricted']

/** @throws InvalidLifecycle for any other value of the option */
export function checkPodSecurity(lifecycle: string, podSecurity: PodSecurity): void {
  if (POD_SECURITY.includes(podSecurity)) return
  throw new InvalidLifecycle(lifecycle, [
    `podSecurity: expected one of ${POD_SECURITY.join(', ')}, got ${JSON.stringify(podSecurity)}`,
  ])
}

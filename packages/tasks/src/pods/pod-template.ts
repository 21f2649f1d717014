import type { ContainerSpec } from './container-shape.js'
import type { PodSecurity } from './documents.js'

/** JSON as the API server accepts it. */
export type Json = { readonly [key: string]: unknown }

export interface PodParts {
  readonly container: ContainerSpec
  readonly containerName: string
  readonly labels: Readonly<Record<string, string>>
  readonly annotations?: Readonly<Record<string, string>>
  readonly security: PodSecurity
  /** More fields of the container: ports, a readiness probe. */
  readonly moreOfContainer?: Json
  /** More fields of the pod: its restart policy. */
  readonly moreOfPod?: Json
}

/**
 * A pod with one container and no rights: no token of a service account (a compromised program can't talk to the API
 * server), no variables derived from the namespace's Services, no privilege escalation.
 */
export function podTemplate(parts: PodParts): Json {
  const { container, containerName, labels, annotations, security, moreOfContainer, moreOfPod } = parts
  const { image, command, args, env, resources, imagePullSecrets } = container
  return {
    metadata: { labels, ...(annotations && { annotations }) },
    spec: {
      automountServiceAccountToken: false,
      enableServiceLinks: false,
      securityContext: {
        seccompProfile: { type: 'RuntimeDefault' },
        ...(security === 'restricted' && { runAsNonRoot: true }),
      },
      ...(imagePullSecrets.length > 0 && { imagePullSecrets: imagePullSecrets.map((name) => ({ name })) }),
      containers: [
        {
          name: containerName,
          image,
          ...(command && { command }),
          ...(args && { args }),
          env: envOf(env),
          ...(resources && { resources }),
          securityContext: {
            allowPrivilegeEscalation: false,
            ...(security === 'restricted' && { capabilities: { drop: ['ALL'] } }),
          },
          ...moreOfContainer,
        },
      ],
      ...moreOfPod,
    },
  }
}

/** The variables, sorted, so that a different order of a document's fields causes no rollout. */
function envOf(env: ContainerSpec['env']): Json[] {
  return Object.entries(env)
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([name, value]) => {
      if ('value' in value) return { name, value: value.value }
      const { name: secret, key, optional } = value.secret
      return { name, valueFrom: { secretKeyRef: { name: secret, key, ...(optional !== undefined && { optional }) } } }
    })
}

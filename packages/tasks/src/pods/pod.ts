/** The parts of a pod that are read here, in the API server's form. */
export interface Pod {
  readonly metadata: {
    readonly name: string
    readonly creationTimestamp?: string | undefined
    readonly deletionTimestamp?: string | undefined
    readonly annotations?: Readonly<Record<string, string>> | undefined
    readonly finalizers?: readonly string[] | undefined
  }
  readonly status?: {
    readonly phase?: string
    readonly reason?: string
    readonly message?: string
    readonly conditions?: readonly PodCondition[]
    readonly initContainerStatuses?: readonly ContainerStatus[]
    readonly containerStatuses?: readonly ContainerStatus[]
  }
}

export interface PodCondition {
  readonly type: string
  readonly status: string
  readonly reason?: string
  readonly message?: string
}

export interface Terminated {
  readonly exitCode: number
  readonly signal?: number
  readonly reason?: string
  readonly message?: string
  readonly startedAt?: string
  readonly finishedAt?: string
}

export interface ContainerStatus {
  readonly name: string
  readonly image?: string
  readonly ready?: boolean
  readonly restartCount?: number
  readonly state?: ContainerState
  readonly lastState?: ContainerState
}

interface ContainerState {
  readonly waiting?: { readonly reason?: string; readonly message?: string }
  readonly running?: { readonly startedAt?: string }
  readonly terminated?: Terminated
}

/** The programs of a control plane. */
export type ControlPlaneProgram =
  | 'etcd'
  | 'kube-apiserver'
  | 'kube-controller-manager'
  | 'kube-scheduler'
  | 'kwok'
  | 'cert-manager'

export interface ControlPlane {
  readonly folder: string
  readonly server: string
  /** Path of the administrator's. */
  readonly kubeconfig: string
  /** Path; what service accounts asked for, a line of JSON each. */
  readonly auditLog: string
  /** Its process, `undefined` while it is stopped. */
  pidOf(name: ControlPlaneProgram): number | undefined
  /** Its data stay. */
  stopProgram(name: ControlPlaneProgram, signal?: NodeJS.Signals): Promise<void>
  /** Starts it again, on the same port; resolves when it is ready. */
  startProgram(name: ControlPlaneProgram): Promise<void>
  stop(): Promise<void>
}

export declare function startControlPlane(options?: { note?: (text: string) => void }): Promise<ControlPlane>

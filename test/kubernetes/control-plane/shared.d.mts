export interface TestRun {
  /** A folder of the run's own. */
  readonly folder: string
  /** The process that it ends with. */
  readonly pid: number
}

export interface SharedControlPlane {
  /** Path of the administrator's. */
  readonly kubeconfig: string
  /** Path; what service accounts asked for, a line of JSON each. */
  readonly auditLog: string
}

export declare function sharedControlPlane(run: TestRun): Promise<SharedControlPlane>
export declare function stopSharedControlPlane(run: TestRun): Promise<void>

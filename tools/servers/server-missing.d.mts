export declare class ServerMissing extends Error {
  readonly program: string
  readonly debianPackage: string
  constructor(program: string, debianPackage: string, lookedIn: string)
}

export declare class WheelMissing extends ServerMissing {
  constructor(wheel: string, version: string, problem: string)
}

export declare class ServerFailed extends Error {
  readonly log: string
  constructor(program: string, why: string, log: string)
}

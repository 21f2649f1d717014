export interface GoProgram {
  readonly name: string
  /** Folder with go.mod, go.sum and, if any, sources. */
  readonly module: string
  readonly package: string
  readonly ldflags?: string
  /** Told when the program has to be built. */
  readonly note?: (text: string) => void
}

export declare function cacheFolder(): string

/** @returns the path of the built program @throws ServerMissing without Go, ServerFailed when it doesn't build */
export declare function goProgram(program: GoProgram): Promise<string>

/** @returns the folder of a required module's sources, downloaded if need be */
export declare function goModuleFolder(module: string, path: string): Promise<string>

export declare const systemTests: readonly string[]
export declare const coreTests: readonly string[]
export declare const engineTests: readonly string[]

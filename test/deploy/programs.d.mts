export type DeployProgram = 'kustomize' | 'helm' | 'rules' | 'actionlint'
/** @returns its path @throws ServerMissing without Go, ServerFailed when it doesn't build */
export declare function deployProgram(name: DeployProgram, note?: (text: string) => void): Promise<string>
export declare function definitionsFolder(of: 'prometheusOperator' | 'keda'): Promise<string>
export declare function prepareAll(note?: (text: string) => void): Promise<void>

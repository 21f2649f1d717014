export declare function pythonWheel(name: string, version: string): Promise<{ folder: string; python: string }>

import type { ModuleMetadata, Provider } from '@nestjs/common'

/** What a `forRootAsync` takes: a factory of the options, with what it needs. */
export interface AsyncOptions<Options> extends Pick<ModuleMetadata, 'imports'> {
  readonly inject?: NonNullable<Extract<Provider, { useFactory: unknown }>['inject']>
  // biome-ignore lint/suspicious/noExplicitAny: what is injected is known to its writer only
  readonly useFactory: (...injected: any[]) => Options | Promise<Options>
}

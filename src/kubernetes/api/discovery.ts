import type { KindRef } from './objects.js'

/** The address of a kind. */
export interface ResourceKind {
  readonly plural: string
  readonly namespaced: boolean
}

/** A resource of an APIResourceList. */
export interface ListedResource {
  readonly name: string
  readonly kind: string
  readonly namespaced: boolean
  readonly verbs?: readonly string[]
}

/** An API group of an APIGroupList. */
export interface ListedGroup {
  readonly name: string
  readonly versions: readonly { readonly groupVersion: string }[]
  readonly preferredVersion: { readonly groupVersion: string }
}

/**
 * The kinds that a server knows, requested once for each API group version. If a kind isn't among them they are requested again,
 * because its CustomResourceDefinition may be newer.
 */
export class Discovery {
  private readonly kinds = new Map<string, Promise<ReadonlyMap<string, ResourceKind>>>()

  /** @param read the resources of a group version; undefined: the server doesn't know it */
  constructor(private readonly read: (path: string) => Promise<readonly ListedResource[] | undefined>) {}

  /** Returns undefined if the server doesn't know this kind. */
  async find({ apiVersion, kind }: KindRef): Promise<ResourceKind | undefined> {
    const known = await this.kinds.get(apiVersion)
    return known?.get(kind) ?? (await this.ask(apiVersion)).get(kind)
  }

  /** Drops the cached kinds of this group version, which may be out of date. */
  forget({ apiVersion }: KindRef): void {
    this.kinds.delete(apiVersion)
  }

  private ask(apiVersion: string): Promise<ReadonlyMap<string, ResourceKind>> {
    const asked = this.read(groupPath(apiVersion)).then((resources = []) => {
      // Names with a slash are subresources.
      const own = resources.filter(({ name }) => !name.includes('/'))
      return new Map(own.map(({ name, kind, namespaced }) => [kind, { plural: name, namespaced }]))
    })
    this.kinds.set(apiVersion, asked)
    asked.catch(() => {
      if (this.kinds.get(apiVersion) === asked) this.kinds.delete(apiVersion)
    })
    return asked
  }
}

/** `v1` -> `/api/v1`, `apps/v1` -> `/apis/apps/v1`. */
export const groupPath = (apiVersion: string): string =>
  apiVersion.includes('/') ? `/apis/${apiVersion}` : `/api/${apiVersion}`

/** The name for messages, in kubectl's notation: `certificates.cert-manager.io`, `pods`. */
export function resourceName({ apiVersion }: Pick<KindRef, 'apiVersion'>, plural: string): string {
  const group = groupOf(apiVersion)
  return group === '' ? plural : `${plural}.${group}`
}

/** `apps/v1` -> `apps`; the core group of `v1` has no name. */
export const groupOf = (apiVersion: string): string =>
  apiVersion.includes('/') ? apiVersion.slice(0, apiVersion.indexOf('/')) : ''

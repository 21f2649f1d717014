import { join } from 'node:path'
import {
  Application,
  type Comment,
  type DeclarationReflection,
  type ProjectReflection,
  ReflectionKind,
  type SignatureReflection,
} from 'typedoc'
import { entries, ROOT } from './entries.ts'

/** What TypeDoc read of the entries. */
export interface Reference {
  /** Exported symbols, and properties of them, without a docstring, as `phaselock/nest: NoScheduler.why`. */
  readonly undocumented: readonly string[]
  /** Entries without an example. */
  readonly withoutExample: readonly string[]
}

const DOCUMENTED =
  ReflectionKind.Class |
  ReflectionKind.Interface |
  ReflectionKind.TypeAlias |
  ReflectionKind.Function |
  ReflectionKind.Variable |
  ReflectionKind.Property |
  ReflectionKind.Method |
  ReflectionKind.Accessor

/** Options of the Markdown plugin, which TypeDoc's own type doesn't know. */
const MARKDOWN = {
  hideBreadcrumbs: true,
  hidePageHeader: true,
  useCodeBlocks: true,
  expandObjects: true,
  useHTMLAnchors: true,
  anchorPrefix: 'api-',
  parametersFormat: 'table',
  interfacePropertiesFormat: 'table',
  enumMembersFormat: 'table',
}

/** Writes a page for each entry to `<folder>/api`, from its docstrings. */
export async function writeReference(folder: string): Promise<Reference> {
  const all = await entries()
  const app = await Application.bootstrapWithPlugins({
    plugin: ['typedoc-plugin-markdown'],
    outputs: [{ name: 'markdown', path: join(folder, 'api') }],
    entryPoints: all.map(({ source }) => join(ROOT, source)),
    tsconfig: join(ROOT, 'tsconfig.build.json'),
    name: 'phaselock',
    readme: 'none',
    entryFileName: 'index',
    router: 'module',
    disableSources: true,
    excludeExternals: true,
    excludeInternal: true,
    excludePrivate: true,
    excludeProtected: true,
    validation: { invalidLink: true, notExported: false, notDocumented: false },
    treatWarningsAsErrors: true,
    logLevel: 'Warn',
    ...MARKDOWN,
  })
  const project = await app.convert()
  if (!project) throw new Error('TypeDoc could not read the entries: see its messages above')
  for (const module of project.children ?? []) {
    const entry = all.find(
      ({ source }) => source.replace(/^src\/|(?:\/?index)?\.ts$/g, '') === module.name.replace(/^index$/, ''),
    )
    if (!entry) throw new Error(`no entry for the module ${module.name}`)
    module.name = entry.name
  }
  app.validate(project)
  await app.generateOutputs(project)
  if (app.logger.hasErrors() || app.logger.hasWarnings())
    throw new Error('TypeDoc found problems: see its messages above')
  return {
    undocumented: undocumented(project),
    withoutExample: (project.children ?? [])
      .filter(({ comment }) => !comment?.getTag('@example'))
      .map(({ name }) => name),
  }
}

function undocumented(project: ProjectReflection): string[] {
  const names = new Set<string>()
  for (const reflection of project.getReflectionsByKind(DOCUMENTED) as DeclarationReflection[]) {
    if (isDocumented(reflection) || isNameOfError(reflection) || isPartOfDocumented(reflection)) continue
    const path: string[] = []
    let at: DeclarationReflection['parent'] = reflection
    for (; at && !at.kindOf(ReflectionKind.Module); at = at.parent)
      if (!at.name.startsWith('__') && !at.kindOf(ReflectionKind.SomeSignature)) path.unshift(at.name)
    names.add(`${at?.name}: ${path.join('.')}`)
  }
  return [...names].sort()
}

function isDocumented({ comment, signatures, getSignature }: DeclarationReflection): boolean {
  const said = (one: { comment?: Comment | undefined } | undefined) => one?.comment?.hasVisibleComponent() === true
  return said({ comment }) || said(getSignature) || signatures?.some((one: SignatureReflection) => said(one)) === true
}

/** A member of an object type that stands inline: what the docstring of the whole says of it is enough. */
function isPartOfDocumented({ parent }: DeclarationReflection): boolean {
  if (!parent?.kindOf(ReflectionKind.TypeLiteral | ReflectionKind.TypeAlias)) return false
  for (let at: DeclarationReflection['parent'] = parent; at && !at.kindOf(ReflectionKind.Module); at = at.parent)
    if (at.comment?.hasVisibleComponent() || isDocumented(at as DeclarationReflection)) return true
  return false
}

/** `override readonly name = 'LeaseLost'`: it says what it is. */
const isNameOfError = ({ name, overwrites, inheritedFrom }: DeclarationReflection) =>
  name === 'name' && (overwrites ?? inheritedFrom) !== undefined

const { LAYERS, ROOMS } = require('./tools/lint/layers.cjs')

const folders = (layers) => `^src/(${layers.flat().join('|')})/`

const upwards = LAYERS.slice(1).map((layer, i) => ({
  name: `${layer.join('-')}-imports-down-only`,
  comment: `src/${layer.join(', src/')} may import only what lies below: ${
    LAYERS.slice(i + 2)
      .flat()
      .join(', ') || 'nothing'
  }.`,
  severity: 'error',
  from: { path: folders([layer]) },
  to: { path: folders(LAYERS.slice(0, i + 1)) },
}))

const siblings = LAYERS.filter((layer) => layer.length > 1).flatMap((layer) =>
  layer.map((name) => ({
    name: `${name}-imports-no-sibling`,
    comment: 'Folders of one layer do not know each other.',
    severity: 'error',
    from: { path: `^src/${name}/` },
    to: { path: folders([layer.filter((other) => other !== name)]) },
  })),
)

const escaped = (folder) => folder.replace(/[/]/g, '\\/')

const rooms = Object.entries(ROOMS).flatMap(([folder, lines]) => {
  const named = (names) => `^${escaped(folder)}/(${names.join('|')})/`
  const all = lines.flat()
  const down = lines.map((line, i) => ({
    name: `${folder.slice(4)}-${line.join('-')}-imports-rooms-below`,
    comment: `In ${folder}, ${line.join(', ')} may import only rooms below: ${
      lines
        .slice(i + 1)
        .flat()
        .join(', ') || 'none'
    }.`,
    severity: 'error',
    from: { path: named(line) },
    to: {
      path: `^${escaped(folder)}/`,
      // Its own room, and those below.
      pathNot: [`^${escaped(folder)}/$1/`, ...(i + 1 < lines.length ? [named(lines.slice(i + 1).flat())] : [])],
    },
  }))
  const unlisted = {
    name: `${folder.slice(4)}-has-no-other-rooms`,
    comment: `A room of ${folder} has its line in ROOMS of .dependency-cruiser.cjs.`,
    severity: 'error',
    from: { path: `^${escaped(folder)}/[^/]+/`, pathNot: named(all) },
    to: {},
  }
  return [...down, unlisted]
})

module.exports = {
  forbidden: [
    ...upwards,
    ...rooms,
    ...siblings.filter((rule) => rule.to.path !== '^src/()/'),
    {
      name: 'a-folder-is-used-through-its-index',
      comment: 'From outside, import src/<folder>/index.ts and not a file inside.',
      severity: 'error',
      from: { path: '^src/([^/]+)/' },
      to: { path: '^src/([^/]+)/', pathNot: ['^src/$1/', '^src/[^/]+/index\\.ts$'] },
    },
    {
      name: 'no-cycles',
      comment: 'Two files that need each other at run time are one file, or need a third.',
      severity: 'error',
      from: { path: '^(src|packages)/' },
      to: { circular: true, viaOnly: { dependencyTypesNot: ['type-only'] } },
    },
    {
      name: 'no-cycles-of-types',
      comment: 'Types that need each other have a place below both.',
      severity: 'error',
      from: { path: '^(src|packages)/' },
      to: { circular: true },
    },
    {
      name: 'core-without-nest',
      comment: 'Phaselock works without Nest: only src/nest and the CLI, which lies above it, import it.',
      severity: 'error',
      from: { path: '^src/', pathNot: '^src/(nest|cli)/' },
      to: { path: 'node_modules/(@nestjs|rxjs|reflect-metadata)' },
    },
    {
      name: 'one-file-knows-the-validator',
      comment:
        'Options and settings are described with `t` of src/options: no declaration that users load names the validator.',
      severity: 'error',
      from: { path: '^src/', pathNot: '^src/options/type\\.ts$' },
      to: { path: '^(node_modules/)?valibot' },
    },
    {
      name: 'src-without-tests',
      severity: 'error',
      from: { path: '^src/' },
      to: { path: '^(test|bench|chaos|examples|tools)/' },
    },
    {
      name: 'local-database-apart',
      comment:
        'The packages beside phaselock are packages of their own: src finds the local database at run time, where it is installed.',
      severity: 'error',
      from: { path: '^src/' },
      to: { path: '^packages/' },
    },
    {
      name: 'packages-import-no-files-of-others',
      comment: 'A package reaches another one by its name only, and so only what that one exports.',
      severity: 'error',
      from: { path: '^packages/([^/]+)/' },
      to: { dependencyTypes: ['local'], pathNot: '^packages/$1/' },
    },
    {
      name: 'packages-import-what-is-exported',
      comment: 'phaselock and its entries, never a file in them: what is missing there is exported, or not needed.',
      severity: 'error',
      from: { path: '^packages/' },
      to: { path: '^phaselock/', pathNot: '^phaselock/[a-z-]+(/nest)?$' },
    },
    {
      name: 'published-code-needs-published-packages',
      comment: 'What src imports must be a dependency or a peer, never a package for development.',
      severity: 'error',
      from: { path: '^(src|packages)/' },
      to: {
        dependencyTypes: ['npm-dev', 'npm-no-pkg', 'npm-unknown'],
        dependencyTypesNot: ['npm-peer'],
        pathNot: '^node:',
      },
    },
  ],
  options: {
    doNotFollow: { path: '(node_modules|^dist)/' },
    tsPreCompilationDeps: true,
    parser: 'swc',
    enhancedResolveOptions: { exportsFields: ['exports'], conditionNames: ['import', 'node', 'default'] },
  },
}

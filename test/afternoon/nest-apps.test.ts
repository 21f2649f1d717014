import { copyFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterEach, expect, jest, test } from '@jest/globals'
import { AppFolder, ROOT } from './app-folder.js'

jest.setTimeout(300_000)

let folder: AppFolder | undefined
afterEach(async () => {
  await folder?.remove()
  folder = undefined
})

const COMPILER = {
  strict: true,
  target: 'es2022',
  experimentalDecorators: true,
  emitDecoratorMetadata: true,
  declaration: true,
  skipLibCheck: false,
  types: ['node'],
  rootDir: 'src',
  outDir: 'dist',
}
/** Programs with a top-level await: ES modules, whatever the app beside them is. */
const OTHERS = ['without-nest', 'moving-from-cron', 'kubernetes']
const nest = (version: number, schedule: number) => [
  ...['common', 'core', 'platform-express'].map((name) => `@nestjs/${name}@${version}`),
  ...[`@nestjs/schedule@${schedule}`, 'reflect-metadata', 'rxjs', '@types/node@24', '@kubernetes/client-node@2'],
]

test.each([
  {
    name: 'Nest 11, CommonJS, TypeScript 5.9',
    packages: [...nest(11, 6), 'typescript@5.9'],
    manifest: {},
    compiler: { module: 'commonjs', esModuleInterop: true },
  },
  {
    name: 'Nest 12, ESM, TypeScript 7',
    packages: [...nest(12, 12), 'typescript@7'],
    manifest: { type: 'module' },
    compiler: { module: 'nodenext' },
  },
])(
  'the example app on $name: compiles with its declarations, and works; the other examples compile',
  async ({ packages, manifest, compiler }) => {
    folder = await AppFolder.make(packages, manifest)
    await folder.copyExample('nest-app')
    await folder.write(
      'tsconfig.json',
      JSON.stringify({ compilerOptions: { ...COMPILER, ...compiler }, include: ['src'] }),
    )
    expect(await folder.run('tsc', '-p', '.')).toMatchObject({ code: 0, out: '' })
    const ran = await folder.run('node', 'dist/main.js')
    expect(ran).toMatchObject({ code: 0 })
    expect(ran.out.match(/Creating -> Created by a step/g)).toHaveLength(3)
    expect(ran.out.match(/: Deleted, \S+@example\.org/g)).toHaveLength(1)

    for (const example of OTHERS) await folder.copyExample(example, `others/${example}`)
    await copyFile(join(ROOT, 'test/afternoon/declared.ts'), join(folder.path, 'others/declared.ts'))
    await folder.write('others/package.json', JSON.stringify({ type: 'module' }))
    const { rootDir: _, ...others } = COMPILER
    const compilerOptions = { ...others, skipLibCheck: true, module: 'nodenext', outDir: 'others/dist' }
    await folder.write('others/tsconfig.json', JSON.stringify({ compilerOptions, include: ['.'] }))
    expect(await folder.run('tsc', '-p', 'others')).toMatchObject({ code: 0, out: '' })
  },
)

import { execFile } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { expect, jest, test } from '@jest/globals'
import { loadYaml } from '@kubernetes/client-node'
import { deployProgram } from './programs.mjs'
import { describeWithGo, ROOT } from './support/render.js'

jest.setTimeout(240_000)
const WORKFLOW = join(ROOT, '.github/workflows/tests.yml')

interface Combination {
  readonly mongodb: string
  readonly members: number
  readonly node: number
  readonly os: string
}
type Matrix = { readonly [K in keyof Combination]: readonly Combination[K][] } & { readonly include: Combination[] }

/** All that a matrix stands for; what it includes here never extends a combination, because it names a version of its own. */
const combinations = ({ mongodb, members, node, os, include }: Matrix): Combination[] => [
  ...mongodb.flatMap((version) =>
    members.flatMap((count) =>
      node.flatMap((major) => os.map((name) => ({ mongodb: version, members: count, node: major, os: name }))),
    ),
  ),
  ...include,
]

describeWithGo('the workflow of the public host', () => {
  test('is one that actionlint accepts', async () => {
    await promisify(execFile)(await deployProgram('actionlint'), ['-color=false', WORKFLOW], { cwd: ROOT })
  })

  test('runs the tests on each release, alone and as three members, with each Node, on Linux and macOS', async () => {
    const { jobs } = loadYaml<{ jobs: { released: { strategy: { matrix: Matrix } } } }>(
      await readFile(WORKFLOW, 'utf8'),
    )
    const runs = combinations(jobs.released.strategy.matrix).map(
      ({ mongodb, members, node, os }) =>
        `${mongodb.replace(/\.\d+$/, '')} ${members} ${node} ${os.replace(/-.*/, '')}`,
    )
    const expected = ['5.0', '6.0', '7.0', '8.0', '8.2'].flatMap((series) =>
      [1, 3].flatMap((members) =>
        [22, 24].flatMap((node) => ['macos', 'ubuntu'].map((os) => `${series} ${members} ${node} ${os}`)),
      ),
    )
    expect(runs.sort()).toEqual(expected)
  })
})

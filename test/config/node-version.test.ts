import { readFile } from 'node:fs/promises'
import { expect, test } from '@jest/globals'
import { requireNode, UnsupportedNode } from '../../src/config/index.js'

test('an older Node.js than package.json asks for is refused, with what is expected and what came', async () => {
  const { engines } = JSON.parse(await readFile('package.json', 'utf8'))
  const oldest = /^>=(\d+\.\d+)$/.exec(engines.node)?.[1]
  for (const version of ['20.20.2', '22.18.9', '9.0.0']) {
    expect(() => requireNode(version)).toThrow(UnsupportedNode)
    expect(() => requireNode(version)).toThrow(
      `expected Node.js ${oldest} or later, got ${version}; install a newer one`,
    )
  }
  for (const version of [`${oldest}.0`, '22.20.1', '23.0.0', '100.0.0', process.versions.node]) requireNode(version)
})

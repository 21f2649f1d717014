import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, test } from '@jest/globals'

const ROOT = new URL('../../', import.meta.url).pathname
const page = await readFile(join(ROOT, 'docs/walkthrough.md'), 'utf8')
/** By its title: the stops of each walk. */
const walks = page
  .split(/^## /m)
  .slice(1)
  .map((walk) => [walk.split('\n')[0]!, walk.split(/^### /m).slice(1)] as const)
const stops = walks.flatMap(([, all]) => all)

/** `src/.../claimer.ts: offer, claimWhileRoom`, each in backquotes, the first line of each stop. */
function placeOf(stop: string) {
  const [, file, methods] = /^`(src\/[^`]+)`: (.+)$/m.exec(stop) ?? []
  return { file: file ?? '', methods: [...(methods ?? '').matchAll(/`(\w+)`/g)].map(([, name]) => name!) }
}

/** A method, or a function of the module. */
const isDeclaredIn = (source: string, method: string) =>
  new RegExp(
    `^(?: +(?:(?:private|static|async) )*|(?:export )?(?:async )?function |export const )${method}(?:<.*>)?(?:\\(| =)`,
    'm',
  ).test(source)

describe('the walkthrough', () => {
  test.each(walks)('%s: eight stops at most', (_title, all) => {
    expect(walks).toHaveLength(4)
    expect(all.length).toBeGreaterThan(0)
    expect(all.length).toBeLessThanOrEqual(8)
  })

  test.each(stops.map((stop) => [stop.split('\n')[0]!, placeOf(stop)] as const))(
    '%s: its file has the methods that are named',
    async (_stop, { file, methods }) => {
      const source = await readFile(join(ROOT, file), 'utf8')
      expect(methods).not.toEqual([])
      expect(methods.filter((method) => !isDeclaredIn(source, method))).toEqual([])
    },
  )
})

import { readdir, readFile } from 'node:fs/promises'
import { PassThrough } from 'node:stream'
import { describe, expect, test } from '@jest/globals'
import type { Command } from 'commander'
import { Output } from '../../src/cli/output.js'
import { buildProgram } from '../../src/cli/program.js'
import { codeBlocks, readPage } from './page.js'

const page = await readPage('docs/troubleshooting.md')

/** As they are typed: in the outputs that it shows, and in its sentences. */
const typed = [
  ...codeBlocks(page.replaceAll('```\n$', '```text\n$')).flatMap(({ code }) => [
    ...code.matchAll(/^\$ npx phaselock (.+)$/gm),
  ]),
  ...page.replace(/^```[\s\S]*?^```/gm, '').matchAll(/`phaselock ([^`]+)`/g),
].map(([, line]) => line!)

/** The texts that it explains, as they stand in the source. */
const EXPLAINED = [
  'no replica is running',
  'no live replica runs it',
  'they wait for a slot',
  'replicas are busy, or they refuse writes',
  'nothing needs a person',
  "isn't set, so what needs it waits",
  'no lifecycles in the database',
  'Sleeps, due ',
  'Parked because ',
  'Held by ',
  'Rests in ',
  'Its shape is broken: ',
  ' has run out)',
  'the server lets no replica write it: ',
  'a bug of the program, ',
  'without a recorded outcome: its handler kills or outlives its replicas',
  'the event loop was blocked for ',
  'the doorbell cannot be heard',
  ' works again after ',
  'another replica has the document, or its owner replaced it; this outcome was dropped and nothing was changed',
  'has given no sign of life for ',
]

describe('docs/troubleshooting.md', () => {
  test('names commands and options that exist', async () => {
    const output = new Output(new PassThrough(), new PassThrough())
    const program = await buildProgram({ env: {}, cwd: '/', stdin: new PassThrough(), output })
    const unknown = typed.filter((line) => {
      const [name, sub] = line.split(' ')
      const command = program.commands.find((one) => one.name() === name)
      const last = command?.commands.find((one) => one.name() === sub) ?? command
      const known = [command, last].flatMap((one?: Command) => one?.options.map(({ long }) => long) ?? [])
      return !command || [...line.matchAll(/--[a-z-]+/g)].some(([option]) => !known.includes(option))
    })
    expect(typed.length).toBeGreaterThan(30)
    expect(unknown).toEqual([])
  })

  test('explains texts that the product prints', async () => {
    const src = new URL('../../src/', import.meta.url).pathname
    const files = (await readdir(src, { recursive: true })).filter((name) => name.endsWith('.ts'))
    const source = (await Promise.all(files.map((name) => readFile(src + name, 'utf8')))).join('\n')
    const inSource = source.replace(/\$\{[^}]*\}/g, '')
    expect(EXPLAINED.filter((text) => !page.includes(text.trim()))).toEqual([])
    expect(EXPLAINED.filter((text) => !inSource.includes(text))).toEqual([])
  })
})

import { execFile } from 'node:child_process'
import { cp, link, mkdir, readdir, readFile } from 'node:fs/promises'
import { basename, dirname, join, resolve } from 'node:path'
import { promisify } from 'node:util'

const run = promisify(execFile)

export interface Instruction {
  readonly name: string
  readonly rest: string
}

/** A stage's instructions, from its FROM on. */
export interface Stage {
  readonly name: string
  readonly image: string
  readonly instructions: readonly Instruction[]
}

/** The stages of a Dockerfile that uses only what tests here can do. */
export function stagesOf(text: string): Stage[] {
  const lines = text
    .replaceAll(/\\\n/g, ' ')
    .split('\n')
    .filter((line) => line.trim() !== '' && !line.startsWith('#'))
  const args: Record<string, string> = {}
  const stages: { name: string; image: string; instructions: Instruction[] }[] = []
  for (const line of lines) {
    const [, name, rest] = /^([A-Z]+)\s+(.+)$/.exec(line)!
    if (name === 'ARG') Object.assign(args, Object.fromEntries([rest!.split('=')]))
    else if (name === 'FROM') {
      const [, image, stage] = /^(\S+)(?: AS (\S+))?$/.exec(rest!)!
      stages.push({
        name: stage ?? 'last',
        image: image!.replace(/\$\{(\w+)\}/, (_, arg) => args[arg]!),
        instructions: [],
      })
    } else stages.at(-1)!.instructions.push({ name: name!, rest: rest! })
  }
  return stages
}

/** What the last instruction of a name says, as its JSON where it is JSON. */
export function lastOf<T>(stage: Stage, name: string): T {
  const { rest } = stage.instructions.findLast((one) => one.name === name)!
  return (rest.startsWith('[') ? JSON.parse(rest) : rest) as T
}

/** Variables of a stage's ENV instructions. */
export const envOf = ({ instructions }: Stage): Record<string, string> =>
  Object.fromEntries(
    instructions
      .filter(({ name }) => name === 'ENV')
      .flatMap(({ rest }) => rest.split(/\s+/).map((pair) => pair.split('=') as [string, string])),
  )

/**
 * Goes through the stages' COPY and RUN instructions without an image: each stage's file system is a folder, `/` within it is that
 * folder, and the programs are this machine's.
 * @param instead what to do in the place of a RUN, by its beginning
 */
export async function runSteps(
  stages: readonly Stage[],
  {
    context,
    root,
    instead,
  }: { context: string; root: string; instead: Record<string, (folder: string) => Promise<void>> },
): Promise<void> {
  const taken = await contextOf(context)
  for (const { name: stage, instructions } of stages) {
    const at = (path: string) => join(root, stage, path)
    let folder = '/'
    for (const { name, rest } of instructions) {
      if (name === 'WORKDIR') {
        folder = rest
        await mkdir(at(folder), { recursive: true })
      } else if (name === 'COPY') {
        const words = rest.split(/\s+/)
        const from = words[0]!.startsWith('--from=') ? words.shift()!.slice('--from='.length) : undefined
        const to = at(resolve(folder, words.pop()!))
        for (const source of words) {
          if (from) await copyTo(join(root, from, source), to)
          else for (const path of taken(source)) await copyTo(join(context, path), join(to, named(source, path)))
        }
      } else if (name === 'RUN') {
        const other = Object.entries(instead).find(([beginning]) => rest.startsWith(beginning))
        if (other) await other[1](at(folder))
        else await run('/bin/sh', ['-ec', rest], { cwd: at(folder), maxBuffer: 16 * 1024 * 1024 })
      }
    }
  }
}

/** Where a file of the context goes below the target: `COPY . .` keeps its path, `COPY a/b c/` only its name. */
const named = (source: string, path: string) => (source === '.' ? path : basename(path))

async function copyTo(from: string, to: string): Promise<void> {
  await mkdir(dirname(to), { recursive: true })
  await cp(from, to, { recursive: true, verbatimSymlinks: true })
}

/** What of a folder reaches the build: .dockerignore has `*`, then what is taken after all. */
async function contextOf(context: string): Promise<(source: string) => string[]> {
  const [first, ...others] = (await readFile(join(context, '.dockerignore'), 'utf8'))
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('#'))
  if (first !== '*' || !others.every((line) => line.startsWith('!')))
    throw new Error('expected .dockerignore to leave all out, and to take some by !')
  const taken = others.map((line) => line.slice(1))
  return (source) => {
    if (source === '.') return taken
    if (!taken.includes(source)) throw new Error(`.dockerignore leaves out what COPY takes: ${source}`)
    return [source]
  }
}

/** A program under another path: a link, or a copy where that is another file system. */
export async function placeProgram(program: string, path: string): Promise<void> {
  await mkdir(dirname(path), { recursive: true })
  await link(program, path).catch(() => cp(program, path))
}

/** All files below a folder, by path. */
export const filesIn = async (folder: string) => (await readdir(folder, { recursive: true })).sort()

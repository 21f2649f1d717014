import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { expect, test } from '@jest/globals'

const GATEWAY = new URL('../../dist/tasks/index.js', import.meta.url).href
const TASKS = new URL('../../packages/tasks/dist/index.js', import.meta.url).href

/** Prints what is imported while the program runs. */
const PROGRAM = `
  import { registerHooks } from 'node:module'
  const asked = new Set()
  registerHooks({ resolve: (specifier, context, next) => (asked.add(specifier), next(specifier, context)) })
  const { apiGatewayLifecycles } = await import(${JSON.stringify(GATEWAY)})
  await import(${JSON.stringify(TASKS)})
  const { MongoClient } = await import('mongodb')
  apiGatewayLifecycles({ db: new MongoClient('mongodb://localhost').db('phaselock') })
  console.log(JSON.stringify([...asked]))
`

test('who uses no cluster and no storage loads no client of them', async () => {
  const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '--eval', PROGRAM])
  const asked: string[] = JSON.parse(stdout)
  expect(asked).toContain('mongodb')
  expect(asked.filter((specifier) => /^@kubernetes|^@aws-sdk/.test(specifier))).toEqual([])
})

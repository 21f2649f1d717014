import { spawnSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, jest, test } from '@jest/globals'
import { sleep } from '../../src/time/index.js'
import { useCliFolder } from './cli-process.js'

jest.setTimeout(240_000)

/** In CI every shell is there; elsewhere its test is skipped, and says so. */
function inShell(shell: 'zsh' | 'fish'): typeof test | typeof test.skip {
  if (process.env['CI'] || !spawnSync(shell, ['-c', 'true']).error) return test
  process.stderr.write(`skipped, no ${shell}: apt-get install ${shell}\n`)
  return test.skip
}

/** Types each line in a zsh on a terminal of its own, then Tab and Enter. */
const TABS_IN_ZSH = `zmodload zsh/zpty
zpty z 'zsh -i'
zpty -r z out '*ready*> '
for line in "$@"; do
  zpty -w -n z "$line"$'\\t'
  zpty -w -n z $'\\n'
  zpty -r z out $'*ran:<*>*'; print -r -- "$out"
done
zpty -d z
`

describe('completion', () => {
  const folder = useCliFolder()

  test('in bash: commands, subcommands and their options', async () => {
    const { out, code } = await folder().run(['completion', 'bash'])
    expect(code).toBe(0)
    const complete = (...words: readonly string[]) => {
      const array = words.map((word) => `'${word}'`).join(' ')
      const script = `${out}\nCOMP_WORDS=(phaselock ${array}); COMP_CWORD=${words.length}; _phaselock; printf '%s\\n' "\${COMPREPLY[@]}"`
      const { stdout, stderr } = spawnSync('bash', ['-c', script], { encoding: 'utf8' })
      expect(stderr).toBe('')
      return stdout.trim().split('\n')
    }
    expect(complete('unp')).toEqual(['unpark'])
    expect(complete('s')).toEqual(['start', 'show', 'set-state', 'set-lock-timeout', 'status', 'schedules'])
    expect(complete('list', 'api-gateway', '--par')).toEqual(['--parked'])
    expect(complete('wake', 'x', '--re')).toEqual(['--reason'])
    expect(complete('wake', 'x', '--wh')).toEqual([''])
    expect(complete('locks', 're')).toEqual(['release'])
    expect(complete('locks', 'release', 'x', '--y')).toEqual(['--yes'])
  })

  test('in zsh and fish: a script that names every command', async () => {
    const [zsh, fish, help] = await Promise.all([
      folder().run(['completion', 'zsh']),
      folder().run(['completion', 'fish']),
      folder().run(['--help']),
    ])
    for (const [, name] of help.out.matchAll(/^ {2}([a-z][a-z-]+)(?: \[| <)/gm)) {
      if (name === 'help') continue
      expect(zsh.out).toContain(name!)
      expect(fish.out).toContain(` -a ${name} -d `)
    }
  })

  inShell('zsh')('a Tab in zsh completes commands, subcommands and their options', async () => {
    const { out } = await folder().run(['completion', 'zsh'])
    const home = folder().path
    const rc = `PS1='> '\nphaselock() { print -r -- "ran:<$*>" }\n${out}\nprint rea''dy\n`
    await Promise.all([writeFile(join(home, '.zshrc'), rc), writeFile(join(home, 'tabs.zsh'), TABS_IN_ZSH)])
    const env = { ...process.env, HOME: home, ZDOTDIR: home, TERM: 'dumb' }
    const lines = ['unp', 'list api-gateway --par', 'locks re', 'locks release x --y']
    const args = ['-f', join(home, 'tabs.zsh'), ...lines.map((line) => `phaselock ${line}`)]
    const { stdout } = spawnSync('zsh', args, { encoding: 'utf8', env, timeout: 60_000 })
    expect(stdout.match(/(?<=ran:<)[^$>]+(?=>)/g)).toEqual([
      ...['unpark', 'list api-gateway --parked', 'locks release', 'locks release x --yes'],
    ])
  })

  inShell('fish')('fish completes commands, subcommands and their options', async () => {
    const { out } = await folder().run(['completion', 'fish'])
    const complete = (line: string) => {
      const script = `${out}\ncomplete -C 'phaselock ${line}'`
      // An argument may have 128 KB at most: it comes as a file.
      const file = join(folder().path, 'complete.fish')
      writeFileSync(file, script)
      const { stdout, stderr } = spawnSync('fish', ['--no-config', file], { encoding: 'utf8' })
      expect(stderr).toBe('')
      return stdout
        .trim()
        .split('\n')
        .map((found) => found.split('\t')[0])
    }
    expect(complete('unp')).toEqual(['unpark'])
    expect(complete('list api-gateway --par')).toEqual(['--parked'])
    expect(complete('locks re')).toEqual(['release'])
    expect(complete('locks release x --y')).toEqual(['--yes'])
  })

  test('a reader that is slow gets all of the script', async () => {
    const whole = (await folder().run(['completion', 'fish'])).out
    const slow = folder().phaselock(['completion', 'fish'])
    slow.child.stdout!.pause()
    // The command's own patience with what a user's module leaves open is half a second.
    await sleep(2_000)
    slow.child.stdout!.resume()
    expect(await slow.exited).toBe(0)
    expect(slow.out).toBe(whole)
  })
})

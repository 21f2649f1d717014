import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from '@jest/globals'
import { newerGlibc } from '../../packages/local-database/src/sources/glibc.js'
import { useLocalDatabase } from '../support/database-local.js'

const local = useLocalDatabase()
const hasApt =
  process.platform === 'linux' &&
  ['debian', 'ubuntu'].some((name) => existsSync(`/usr/share/keyrings/${name}-archive-keyring.gpg`))

/** apt-get and dpkg-deb that write what they are asked to a file and make packages out of nothing. */
async function fakeApt(download = 'touch libc6.deb'): Promise<NodeJS.ProcessEnv> {
  const asked = join(local().root, 'asked')
  await local().script('bin/apt-get', `echo "$@" >> ${asked}; case "$*" in *download*) ${download};; esac`)
  await local().script(
    'bin/dpkg-deb',
    `sleep 0.2; for t in x86_64 aarch64; do d=$3/usr/lib/$t-linux-gnu; mkdir -p $d
     touch $d/ld-linux-x86-64.so.2 $d/ld-linux-aarch64.so.1 $d/libc.so.6 $d/libstdc++.so.6 $d/libgcc_s.so.1; done`,
  )
  return { PATH: `${local().root}/bin:${process.env['PATH']}`, XDG_CACHE_HOME: join(local().root, 'cache') }
}

;(hasApt ? describe : describe.skip)('the newer C libraries for the embedded engine', () => {
  it('are fetched with apt into the cache folder of the user, once, and named as the loader', async () => {
    const logged: string[] = []
    const env = await fakeApt()
    const { loader } = await newerGlibc(env, (message) => logged.push(message))
    expect(loader[0]).toMatch(/\/cache\/phaselock\/glibc-[a-z]+-\w+\/usr\/lib\/\w+-linux-gnu\/ld-linux/)
    expect(loader.slice(1)).toEqual(['--library-path', join(loader[0]!, '..')])
    await newerGlibc(env, (message) => logged.push(message))
    expect(logged).toHaveLength(1)
    const asked = readFileSync(join(local().root, 'asked'), 'utf8').trim().split('\n')
    expect(asked).toHaveLength(2)
    expect(asked[1]).toMatch(/download libc6 libstdc\+\+6 libgcc-s1$/)
  })

  it('may be fetched by several at once: one whole set stays, and nothing else', async () => {
    const env = await fakeApt()
    const all = await Promise.all([1, 2, 3].map(() => newerGlibc(env, () => undefined)))
    expect(new Set(all.map(({ loader }) => loader[0])).size).toBe(1)
    expect(existsSync(all[0]!.loader[0]!)).toBe(true)
    expect(readdirSync(join(local().root, 'cache/phaselock'))).toHaveLength(1)
  })

  it('leave nothing behind when apt fails, and say what it said', async () => {
    const env = await fakeApt('echo "E: no mirror" >&2; exit 100')
    await expect(newerGlibc(env, () => undefined)).rejects.toThrow(/can't be fetched: apt-get: E: no mirror/)
    expect(readdirSync(join(local().root, 'cache/phaselock'))).toEqual([])
  })

  it('say which variable to set where HOME can not be written', async () => {
    const env = { ...(await fakeApt()), XDG_CACHE_HOME: '', HOME: '/dev/null' }
    await expect(newerGlibc(env, () => undefined)).rejects.toThrow(
      /expected a writable folder for newer C libraries at \/dev\/null\/.cache\/phaselock, got ENOTDIR.*; set XDG_CACHE_HOME to one/,
    )
  })
})

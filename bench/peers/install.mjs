import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

const folder = fileURLToPath(new URL('.', import.meta.url))

/** Installs what package-lock.json here names, unless those versions are there already. Nobody else needs it. */
export function installPeers(progress) {
  if (isInstalled()) return
  progress('installing the peers: npm ci --prefix bench/peers')
  const { status } = spawnSync('npm', ['ci', '--no-audit', '--no-fund', '--ignore-scripts'], {
    cwd: folder,
    stdio: ['ignore', 2, 2],
  })
  if (status !== 0) throw new Error('expected `npm ci` in bench/peers to install the peers, it failed; see above')
}

function isInstalled() {
  const { packages } = JSON.parse(readFileSync(`${folder}package-lock.json`, 'utf8'))
  return Object.keys(packages[''].dependencies).every((name) => {
    try {
      const { version } = JSON.parse(readFileSync(`${folder}node_modules/${name}/package.json`, 'utf8'))
      return version === packages[`node_modules/${name}`].version
    } catch {
      return false
    }
  })
}

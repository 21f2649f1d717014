import { mkdtemp, rm } from 'node:fs/promises'
import { type AddressInfo, createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from '@jest/globals'
import { openEngineFolder } from '../../packages/local-database/src/engine/folder.js'
import { joinKeeper } from '../../packages/local-database/src/engine/keeper-link.js'
import { identify } from '../../packages/local-database/src/engine/process-identity.js'
import { writeState } from '../../packages/local-database/src/engine/state.js'

test('a keeper that is ending resets who wants to join it, who then finds that there is none', async () => {
  const root = await mkdtemp(join(tmpdir(), 'phaselock-keeper-'))
  const ending = createServer((socket) => socket.once('data', () => socket.resetAndDestroy()))
  try {
    await new Promise<void>((resolve) => ending.listen({ host: '127.0.0.1', port: 0 }, resolve))
    const folder = await openEngineFolder(root)
    const { port } = ending.address() as AddressInfo
    const keeper = { process: identify(process.pid)!, controlPort: port, secret: 'known' }
    writeState(folder, { port: 1, source: 'embedded', keeper })
    expect(await joinKeeper(folder)).toBeUndefined()
  } finally {
    ending.close()
    await rm(root, { recursive: true, force: true })
  }
})

import { sleep } from '../time.js'
import type { EngineFolder } from './folder.js'
import type { KeeperLink } from './keeper-link.js'
import { type OpenEngineOptions, openEngine } from './open-engine.js'

export type Log = (message: string, fields?: object) => void

/**
 * A replica's stake in the local engine: until it is given up, the engine runs. If keeper or engine die, every replica tries to
 * start them again on the same port; the folder's lock lets one do it, and the others join.
 */
export class EngineMembership {
  private left = false
  private readonly stop = new AbortController()

  constructor(
    private readonly folder: EngineFolder,
    private link: KeeperLink,
    private readonly options: OpenEngineOptions,
    private readonly log: Log,
  ) {
    void this.watch()
  }

  /** Gives up the stake: the engine ends if this was the last one. */
  leave(): void {
    this.left = true
    this.stop.abort()
    this.link.close()
  }

  private async watch(): Promise<void> {
    for (;;) {
      await this.link.closed
      if (this.left) return
      this.log('the database engine has ended, starting it again', { port: this.link.port })
      const again = await this.recover()
      if (!again) return
    }
  }

  private async recover(): Promise<boolean> {
    const { port } = this.link
    for (let pauseMs = 200; !this.left; pauseMs = Math.min(pauseMs * 2, 5_000)) {
      const opened = await openEngine(this.folder, { ...this.options, samePort: true }).catch((error: Error) => ({
        tried: [{ name: this.folder.root, said: error.message }],
      }))
      if ('link' in opened) {
        if (this.left) {
          opened.link.close()
          return false
        }
        this.link = opened.link
        if (opened.link.port === port) this.log('the database engine is back', { port, startedHere: opened.started })
        else this.log(`the database engine is now on port ${opened.link.port}; restart this process`, { port })
        return true
      }
      this.log('the database engine does not start', { tried: opened.tried })
      await sleep(pauseMs, { signal: this.stop.signal, unref: true })
    }
    return false
  }
}

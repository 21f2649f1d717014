import { createHash, timingSafeEqual } from 'node:crypto'
import { readFile, stat } from 'node:fs/promises'
import { resolve } from 'node:path'
import { CliError, EXIT } from '../../errors.js'

const SHORTEST_TOKEN = 20
const LONGEST_NAME = 200
/** The maximum number of bytes of the file, because it is read for each request. */
const MOST_BYTES = 1024 * 1024

/**
 * The people who may see and answer questions over HTTP: a file with a line `name: token` for each. It is read for each request, so that a
 * token can be revoked.
 */
export class AnswerTokens {
  private constructor(private readonly path: string) {}

  /** @throws CliError for a file that can't be read or used */
  static async of(file: string): Promise<AnswerTokens> {
    const tokens = new AnswerTokens(resolve(file))
    await tokens.read()
    return tokens
  }

  /**
   * The name that belongs to the token of `Authorization: Bearer <token>`; undefined if there is no such token. @throws CliError as `of`
   * does
   */
  async nameOf(authorization: string): Promise<string | undefined> {
    const [, token] = /^Bearer +(\S+)$/i.exec(authorization) ?? []
    if (token === undefined) return undefined
    const given = digest(token)
    const known = await this.read()
    return known.find((one) => timingSafeEqual(digest(one.token), given))?.name
  }

  private async read(): Promise<readonly { readonly name: string; readonly token: string }[]> {
    const text = await this.text()
    const lines = text.split('\n').map((line, i) => ({ line: line.trim(), at: `line ${i + 1}` }))
    const known = lines
      .filter(({ line }) => line !== '' && !line.startsWith('#'))
      .map(({ line, at }) => {
        // The line isn't shown: it is a secret.
        const [, name, token] = /^([^:]*[^:\s])\s*:\s*(\S+)$/.exec(line) ?? []
        if (name === undefined || token === undefined)
          throw this.unusable(`${at}: expected \`name: token\`, got something else`)
        if (token.length < SHORTEST_TOKEN || name.length > LONGEST_NAME)
          throw this.unusable(
            `${at}: expected a name of up to ${LONGEST_NAME} characters and a token of ${SHORTEST_TOKEN} or more, got ${name.length} and ${token.length}; for one: openssl rand -hex 24`,
          )
        return { name, token }
      })
    if (new Set(known.map(({ token }) => token)).size < known.length)
      throw this.unusable('expected a token of its own for each name, got the same twice')
    if (known.length === 0) throw this.unusable('expected a line `name: token`, got none')
    return known
  }

  /**
   * Reads the file. Only a plain file is accepted, because others, such as a pipe, might have no end: each request would block a thread of
   * this process for good.
   */
  private async text(): Promise<string> {
    const unreadable = (error: NodeJS.ErrnoException): never => {
      throw this.unusable(`expected a file that can be read, got ${error.code ?? error.message}`)
    }
    const about = await stat(this.path).catch(unreadable)
    if (!about.isFile()) throw this.unusable('expected a plain file, got something else')
    if (about.size > MOST_BYTES) throw this.unusable(`expected at most ${MOST_BYTES} bytes, got ${about.size}`)
    return await readFile(this.path, 'utf8').catch(unreadable)
  }

  private unusable(problem: string): CliError {
    return new CliError('InvalidAnswerTokens', EXIT.usage, `--answer-tokens ${this.path}: ${problem}`)
  }
}

const digest = (token: string): Buffer => createHash('sha256').update(token).digest()

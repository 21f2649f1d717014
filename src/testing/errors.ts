import { BSON } from 'mongodb'

/** A document isn't in the phase, or hasn't the history, that a test expected; shows what it has. */
export class UnexpectedDocument extends Error {
  override readonly name = 'UnexpectedDocument'
  constructor(
    readonly expected: string,
    readonly found: object | null,
  ) {
    const text = found ? BSON.EJSON.stringify(found, { relaxed: true }, 2) : 'no such document'
    super(`expected ${expected}, found:\n${text}`)
  }
}

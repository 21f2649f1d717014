/** Why an operation did nothing. Each class is a kind of answer; the message says what to do. */
export abstract class OperationError extends Error {}

/** What was asked for can't be understood: unknown names, values out of range, text that isn't JSON. */
export class UsageError extends OperationError {
  override readonly name = 'UsageError'
}

/** There is no such document, schedule, lock or the like. */
export class NotFound extends OperationError {
  override readonly name = 'NotFound'
}

/** Something forbids it as things are: the document is held, parked, not parked, or there already. */
export class Refused extends OperationError {
  override readonly name = 'Refused'
}

/** @internal */
export const COMES_AT = Symbol.for('phaselock:comes-at')

/**
 * When a time of the server's counts as come for a running step, as it does for deadlines: later than that time while a forward step of the server's
 * clock isn't confirmed.
 */
export function comesAt(step: object, time: Date): Date {
  const { [COMES_AT]: judged } = step as { [COMES_AT]?(time: Date): Date }
  return judged ? judged.call(step, time) : time
}

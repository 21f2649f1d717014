/**
 * Tells several observers of an event, each with a method of that name or none.
 * @param threw told of what one throws or rejects with; it harms nobody else
 */
export function tellObservers<Observer extends object>(
  observers: Iterable<Observer>,
  what: keyof Observer,
  event: unknown,
  threw: (error: unknown) => void,
): void {
  for (const observer of observers) {
    try {
      const told = (observer[what] as ((event: unknown) => unknown) | undefined)?.call(observer, event)
      if (told instanceof Promise) told.catch(threw)
    } catch (error) {
      threw(error)
    }
  }
}

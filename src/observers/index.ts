/**
 * Notifies several observers of an event, each by its method of that name, if it has one.
 * @param threw called with what one throws or rejects with, which doesn't affect the others
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

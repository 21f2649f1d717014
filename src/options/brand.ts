type Class = abstract new (...args: never[]) => object

/**
 * Makes `instanceof` true for the instances of these classes in every copy of Phaselock that a process has loaded: an app and a package
 * that it uses may each bring one, and an `Unavailable` of the other must not count as an error. A class derived from them is judged as ever.
 */
export function brand(classes: Readonly<Record<string, Class>>): void {
  for (const [name, branded] of Object.entries(classes)) {
    const mark = Symbol.for(`phaselock:${name}`)
    Object.defineProperty(branded.prototype, mark, { value: true })
    Object.defineProperty(branded, Symbol.hasInstance, {
      value(this: Class, value: unknown): boolean {
        if (this !== branded) return Function.prototype[Symbol.hasInstance].call(this, value)
        return typeof value === 'object' && value !== null && mark in value
      },
    })
  }
}

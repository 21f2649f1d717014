type Class = abstract new (...args: never[]) => object

/**
 * Makes `instanceof` true for the instances of these classes in every copy of Phaselock that a process has loaded. An app and a package
 * that it uses may each bring one, and an `Unavailable` of the other copy must not count as an error. Derived classes are judged as usual.
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

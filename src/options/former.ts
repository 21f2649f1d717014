import { InvalidOptions, renamedNow } from './read-options.js'

/**
 * Makes each former field of a result throw InvalidOptions, which names the present one. An absent field would read as false: a handler in JavaScript
 * that asks for it would wait forever.
 */
export function withFormerFields<T extends object>(
  called: string,
  result: T,
  former: Readonly<Record<string, keyof T & string>>,
): T {
  for (const [field, name] of Object.entries(former)) {
    const get = () => {
      throw new InvalidOptions(called, [renamedNow(field, name)])
    }
    Object.defineProperty(result, field, { get })
  }
  return result
}

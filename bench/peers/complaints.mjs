/**
 * Says on standard error what a peer complains of, until its session ends: stopped in the middle of its work, each has
 * something to say.
 */
export function complaints(name) {
  let ended = false
  return {
    say: (message) => {
      if (!ended) console.error(`${name}: ${message}`)
    },
    end: () => {
      ended = true
    },
  }
}

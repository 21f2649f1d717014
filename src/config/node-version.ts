/** The oldest Node.js that works, matching `engines` in package.json. */
const OLDEST = [22, 19] as const

/** This Node.js is older than the oldest one that works; without this check it would fail later, and elsewhere. */
export class UnsupportedNode extends Error {
  override readonly name = 'UnsupportedNode'
  constructor(
    /** The running version, from `process.versions.node`. */
    readonly version: string,
  ) {
    super(`expected Node.js ${OLDEST.join('.')} or later, got ${version}; install a newer one (https://nodejs.org)`)
  }
}

/** @throws UnsupportedNode */
export function requireNode(version = process.versions.node): void {
  const [major = 0, minor = 0] = version.split('.').map(Number)
  if (major < OLDEST[0] || (major === OLDEST[0] && minor < OLDEST[1])) throw new UnsupportedNode(version)
}

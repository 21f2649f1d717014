/** The program of a throwaway server isn't on this machine. */
export class ServerMissing extends Error {
  name = 'ServerMissing'

  /** @param program what was looked for @param debianPackage what brings it on Debian and Ubuntu @param lookedIn where */
  constructor(program, debianPackage, lookedIn) {
    super(
      `expected the program '${program}', it is not there (looked in ${lookedIn}); on Debian or Ubuntu: apt-get install ${debianPackage}`,
    )
    this.program = program
    this.debianPackage = debianPackage
  }
}

/** The server was started and did not come up; `log` is the end of what it wrote. */
export class ServerFailed extends Error {
  name = 'ServerFailed'

  constructor(program, why, log) {
    super(`${program} did not start: ${why}${log ? `\n${log}` : ''}`)
    this.log = log
  }
}

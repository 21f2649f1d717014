/** The milliseconds of a clock that never steps, for measuring how long something takes. The server's clock says when it was. */
export const elapsed = (): number => performance.now()

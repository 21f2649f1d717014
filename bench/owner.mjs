import { child } from './child.mjs'

/** An owner's process: see owner-process.mjs. One thing at a time; `load` goes on until `stop`. */
export async function ownerProcess(uri, database) {
  const process = child('owner-process.mjs', "an owner's process")
  const ask = (kind, given = {}) => process.ask({ kind, ...given })
  await ask('connect', { uri, database })
  return {
    probe: (given) => ask('probe', given),
    burst: (count) => ask('burst', { count }),
    sleepers: (given) => ask('sleepers', given),
    load: (given) => ask('load', given),
    /** @returns all documents of load and burst that it has inserted so far */
    stop: () => ask('stop'),
    close: process.close,
  }
}

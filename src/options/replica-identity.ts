/**
 * The identity of a replica: its name (POD_NAME, else the host's) made unique per start, as in `api-7f9c-x2k~5f3a9c`. A name reused
 * after a restart never matches the leases of the previous process.
 */
export function replicaIdentity(name: string, random: () => number = Math.random): string {
  const start = Math.floor(random() * 0x1000000)
    .toString(16)
    .padStart(6, '0')
  return `${name.replaceAll(/[~#]/g, '-')}~${start}`
}

/** For Docker's HEALTHCHECK: whether the replica's process answers. Kubernetes asks by itself. */
const answer = await fetch(`http://127.0.0.1:${process.env.PHASELOCK_HTTP}/livez`).catch(() => undefined)
process.exitCode = answer?.ok ? 0 : 1

/**
 * Kubernetes gives each pod variables for every Service of its namespace: a Service named `phaselock` or `phaselock-http` brings
 * PHASELOCK_SERVICE_HOST, PHASELOCK_SERVICE_PORT_HTTP, PHASELOCK_PORT=tcp://10.0.0.7:8080, PHASELOCK_PORT_8080_TCP_ADDR,
 * PHASELOCK_HTTP_PORT=tcp://... These are never settings, and must not be refused as unknown ones.
 */
export function isKubernetesVariable(name: string, value: string): boolean {
  if (/_SERVICE_HOST$|_SERVICE_PORT(_[A-Z0-9_]+)?$/.test(name)) return true
  if (/_PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?$/.test(name)) return true
  return /_PORT$/.test(name) && /^(tcp|udp|sctp):\/\//.test(value)
}
